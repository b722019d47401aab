package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentworks-deploy/internal/sandbox/policy"
)

func TestL04ABlockedFileIsHiddenAndTheRestIsNot(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "project/db")
	secret := w.write(t, "project/db/db.sqlite", "secret")
	w.write(t, "project/db/other", "other")
	outside := w.write(t, "public.txt", "public")
	everyStart(t, func(t *testing.T, how start) {
		p := policy.Policy{WritePaths: []string{w.path("project")}, HiddenPaths: []string{secret}}
		for _, words := range [][]string{{"read", secret}, {"write", secret}, {"read", outside}} {
			w.probe(t, how, p, words...).wants(t, 0, "EACCES\n")
		}
		w.probe(t, how, p, "unlink", secret).wants(t, 0, "EBUSY\n")
		w.probe(t, how, p, "rename", w.path("project/db/other"), secret).wants(t, 0, "EBUSY\n")
		w.probe(t, how, p, "chmod", secret).wants(t, 0, "EROFS\n")
		w.probe(t, how, p, "write", w.path("project/db/other")).wants(t, 0, "ok\n")
		w.sh(t, how, p, "id -u; stat -c '%a %s' "+secret).wants(t, 0, fmt.Sprintf("%d\n0 0\n", slotID))
		if got := readFile(t, secret); got != "secret" {
			t.Errorf("the real file now holds %q", got)
		}
	})
}

func TestS01AHiddenLinkHidesItsTarget(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "outside")
	w.write(t, "outside/file", "text")
	link := w.link(t, "link", "outside", slotID)
	everyStart(t, func(t *testing.T, how start) {
		p := policy.Policy{WritePaths: []string{w.dir}, HiddenPaths: []string{link}}
		for _, name := range []string{link + "/file", w.path("outside/file")} {
			w.probe(t, how, p, "read", name).wants(t, 0, "EACCES\n")
		}
		// The link itself stays what it is: it led to the cover.
		w.probe(t, how, p, "unlink", link).wants(t, 0, "EBUSY\n")
		if got := readFile(t, w.path("outside/file")); got != "text" {
			t.Errorf("the target now holds %q", got)
		}
	})
}

func TestS02AProtectedLinkToNowhereKillsNoCommand(t *testing.T) {
	w := newWorld(t)
	link := w.link(t, ".bashrc", "/nix/x", slotID)
	everyStart(t, func(t *testing.T, how start) {
		for _, p := range []policy.Policy{
			{WritePaths: []string{w.dir}, ReadOnlyOverlays: []string{link}},
			{WritePaths: []string{w.dir}, HiddenPaths: []string{link}},
		} {
			w.run(t, how, p, "/bin/true").wants(t, 0, "")
			w.probe(t, how, p, "unlink", link).wants(t, 0, "EBUSY\n")
		}
	})
}

func TestS04AHiddenPathWithoutItsFolder(t *testing.T) {
	w := newWorld(t)
	w.write(t, "file", "old")
	w.mkdir(t, "folder")
	hidden := w.path(".x/y")
	everyStart(t, func(t *testing.T, how start) {
		p := policy.Policy{WritePaths: []string{w.dir}, HiddenPaths: []string{hidden}}
		w.probe(t, how, p, "mkdir", w.path(".x")).wants(t, 0, "EROFS\n")
		// Outside every grant to write there is nothing to keep from being.
		w.run(t, how, policy.Policy{ReadPaths: []string{w.dir}, HiddenPaths: []string{hidden}}, "/bin/true").wants(t, 0, "")
		if _, err := os.Lstat(w.path(".x")); !os.IsNotExist(err) {
			t.Errorf("made on the host: %v", err)
		}
	})
}

func TestL06BlockedForWritingInsideAWriteGrant(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "project/planning/deep")
	plan := w.write(t, "project/planning/plan.json", "plan")
	w.mkdir(t, "project/other")
	everyStart(t, func(t *testing.T, how start) {
		p := policy.Policy{WritePaths: []string{w.path("project")}, ReadOnlyOverlays: []string{w.path("project/planning")}}
		w.sh(t, how, p, "cat "+plan).wants(t, 0, "plan")
		w.probe(t, how, p, "create", w.path("project/planning/new")).wants(t, 0, "EROFS\n")
		w.probe(t, how, p, "create", w.path("project/planning/deep/new")).wants(t, 0, "EROFS\n")
		w.probe(t, how, p, "write", plan).wants(t, 0, "EROFS\n")
		w.probe(t, how, p, "unlink", plan).wants(t, 0, "EROFS\n")
		w.probe(t, how, p, "rename", w.path("project/planning"), w.path("project/away")).wants(t, 0, "EBUSY\n")
		w.sh(t, how, p, "echo x > project/other/f && rm project/other/f").wants(t, 0, "")
	})
}

func TestL06ABlockedNameThatDoesNotExistYet(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "p/sub")
	w.write(t, "p/db.sqlite", "db")
	w.write(t, "p/sub/file", "file")
	w.link(t, "p/link", "sub/file", slotID)
	wal := w.path("p/db.sqlite-wal")
	everyStart(t, func(t *testing.T, how start) {
		for _, p := range []policy.Policy{
			{WritePaths: []string{w.path("p")}, ReadOnlyOverlays: []string{wal}},
			{WritePaths: []string{w.path("p")}, HiddenPaths: []string{wal}},
			{WritePaths: []string{w.dir}, HiddenPaths: []string{wal, w.path("p/another")}},
		} {
			w.probe(t, how, p, "create", wal).wants(t, 0, "EROFS\n")
			w.probe(t, how, p, "rename", w.path("p/sub/file"), wal).wants(t, 0, "EXDEV\n")
			w.sh(t, how, p, "cat p/link && echo new > p/db.sqlite && echo x > p/sub/new && rm p/sub/new && cat p/db.sqlite").wants(t, 0, "filenew\n")
		}
		if _, err := os.Lstat(wal); !os.IsNotExist(err) {
			t.Errorf("made on the host: %v", err)
		}
	})
}

func TestL06ACrowdedFolderIsRefused(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "p")
	for i := range maxFrozen {
		w.write(t, fmt.Sprintf("p/f%d", i), "")
	}
	p := policy.Policy{WritePaths: []string{w.path("p")}, HiddenPaths: []string{w.path("p/absent")}}
	w.run(t, plainly, p, "/bin/true").wants(t, 0, "")
	w.write(t, "p/one-more", "")
	w.run(t, plainly, p, "/bin/true").refused(t, 125, "p/absent", "64 entries")
}

func TestS43ACoverCannotBeMovedAway(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "ws/.app/state")
	w.write(t, "ws/.app/state/file", "text")
	w.mkdir(t, "ws/other")
	w.write(t, "ws/file", "mine")
	ws, state := w.path("ws"), w.path("ws/.app/state")
	everyStart(t, func(t *testing.T, how start) {
		for _, p := range []policy.Policy{
			{WritePaths: []string{ws}, ReadOnlyOverlays: []string{state}},
			{WritePaths: []string{ws}, HiddenPaths: []string{state}},
			{WritePaths: []string{w.path("ws/.app"), ws}, HiddenPaths: []string{state + "/file"}},
		} {
			for _, words := range [][]string{
				{"rename", state, ws + "/away"},
				{"rename", ws + "/other", state},
				{"rename", ws + "/.app", ws + "/away"},
				{"exchange", ws + "/.app", ws + "/other"},
				{"exchange", ws + "/other", state},
			} {
				got := w.probe(t, how, p, words...)
				if got.stdout != "EBUSY\n" && got.stdout != "EXDEV\n" {
					t.Errorf("%v: %+v", words, got)
				}
			}
		}
	})
}

func TestL07AndL09PrivateRootsAndTmp(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "run/slot01")
	w.mkdir(t, "run/slot02")
	w.write(t, "run/slot01/own", "own")
	listen(t, w.path("run/slot01/tmux.sock"))
	hostTmp, err := os.MkdirTemp("/tmp", "launcher-test")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(hostTmp)
	if err := os.Chmod(hostTmp, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"granted", "secret"} {
		if err := os.WriteFile(filepath.Join(hostTmp, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := w.path("run")
	socket := run + "/slot01/tmux.sock"
	w.probe(t, plainly, policy.Policy{ReadPaths: []string{w.dir}}, "connect", socket).wants(t, 0, "ok\n")
	everyStart(t, func(t *testing.T, how start) {
		p := private(policy.Policy{ReadPaths: []string{w.dir, hostTmp + "/granted"}, PrivateRoots: []string{run}})
		w.probe(t, how, p, "connect", socket).wants(t, 0, "ENOENT\n")
		w.sh(t, how, p, "ls "+run+"; ls /tmp/*").wants(t, 0, "granted\n")
		w.sh(t, how, p, "cat "+hostTmp+"/granted; echo x >"+hostTmp+"/granted").wants(t, 2, "granted")
		w.sh(t, how, p, "echo x >/tmp/new && cat /tmp/new; echo y >/dev/shm/new && cat /dev/shm/new").wants(t, 0, "x\ny\n")
		w.probe(t, how, p, "create", run+"/new").wants(t, 0, "EROFS\n")
		p.WritePaths = []string{run + "/slot01/own", hostTmp}
		w.sh(t, how, p, "ls "+run+" "+run+"/slot01; echo x >"+run+"/slot01/own; cat "+run+"/slot01/own; rm "+hostTmp+"/granted/x 2>/dev/null; ls "+hostTmp).
			wants(t, 0, run+":\nslot01\n\n"+run+"/slot01:\nown\nx\ngranted\nsecret\n")
		w.write(t, "run/slot01/own", "own")
	})
	for _, name := range []string{"/tmp/new", "/dev/shm/new"} {
		if _, err := os.Lstat(name); !os.IsNotExist(err) {
			t.Errorf("%s came to the host: %v", name, err)
		}
	}
}

func TestAGrantThatCannotBeAsNarrowInsideAPrivateTmpIsRefused(t *testing.T) {
	w := newWorld(t)
	dir, err := os.MkdirTemp("/tmp", "launcher-test")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w.run(t, plainly, private(policy.Policy{ListPaths: []string{dir}}), "/bin/true").refused(t, 125, "names alone")
	w.run(t, plainly, private(policy.Policy{WorkDir: dir}), "/bin/true").refused(t, 125, "work_dir")
	w.run(t, plainly, private(policy.Policy{WorkDir: dir, ReadPaths: []string{dir}}), "/bin/pwd").wants(t, 0, dir+"\n")
	w.run(t, plainly, private(policy.Policy{WorkDir: "/tmp"}), "/bin/pwd").wants(t, 0, "/tmp\n")
}

func TestALinkInsideAPrivateRootStillLeadsToItsGrant(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "data")
	w.write(t, "data/file", "text")
	if err := os.Chown(w.mkdir(t, "root"), 0, 0); err != nil {
		t.Fatal(err)
	}
	link := w.link(t, "root/link", "../data", 0)
	if err := os.Chown(w.dir, 0, 0); err != nil {
		t.Fatal(err)
	}
	everyStart(t, func(t *testing.T, how start) {
		p := policy.Policy{ReadPaths: []string{link}, PrivateRoots: []string{w.path("root")}}
		w.run(t, how, p, "/bin/cat", link+"/file").wants(t, 0, "text")
	})
}

func TestS07TheLaunchersDevicesWin(t *testing.T) {
	w := newWorld(t)
	everyStart(t, func(t *testing.T, how start) {
		for _, p := range []policy.Policy{{WritePaths: []string{"/dev"}}, private(policy.Policy{WritePaths: []string{"/dev"}})} {
			got := w.sh(t, how, p, "echo x >/dev/null && head -c1 /dev/zero | wc -c && echo x >/dev/shm/launcher-test && cat /dev/shm/launcher-test")
			got.wants(t, 0, "1\nx\n")
		}
		if _, err := os.Lstat("/dev/shm/launcher-test"); !os.IsNotExist(err) {
			t.Errorf("it came to the host: %v", err)
		}
	})
}

func TestPrivatePTSGivesTerminalsOfItsOwn(t *testing.T) {
	w := newWorld(t)
	everyStart(t, func(t *testing.T, how start) {
		p := policy.Policy{PrivatePTS: true}
		w.sh(t, how, p, "ls /dev/pts; script -qec 'tty' /dev/null </dev/null").wants(t, 0, "ptmx\n/dev/pts/0\r\n")
	})
}

func TestS10NothingIsMadeThroughALink(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "elsewhere")
	link := w.link(t, "tmp", "elsewhere", slotID)
	everyStart(t, func(t *testing.T, how start) {
		p := private(policy.Policy{WritePaths: []string{w.dir}, PrivateRoots: []string{link}, HiddenPaths: []string{link + "/a/b"}})
		w.run(t, how, p, "/bin/true").wants(t, 0, "")
		if entries, err := os.ReadDir(w.path("elsewhere")); err != nil || len(entries) != 0 {
			t.Errorf("%v, %v", entries, err)
		}
	})
}

func TestS41AReadGrantKeepsModesOwnersTimesAndAttributes(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "ro/deep")
	file := w.write(t, "ro/deep/file", "text")
	single := w.write(t, "single", "text")
	everyStart(t, func(t *testing.T, how start) {
		p := private(policy.Policy{ReadPaths: []string{w.path("ro"), single}})
		for _, name := range []string{file, single} {
			for _, what := range []string{"chmod", "chown", "utimes", "setxattr", "truncate", "write"} {
				w.probe(t, how, p, what, name).wants(t, 0, "EROFS\n")
			}
		}
		// A grant to write inside stays one.
		p.WritePaths = []string{w.path("ro/deep")}
		w.probe(t, how, p, "write", file).wants(t, 0, "ok\n")
		w.probe(t, how, p, "create", w.path("ro/new")).wants(t, 0, "EROFS\n")
	})
}

func TestS35RenameAndLinkBetweenWriteGrants(t *testing.T) {
	w := newWorld(t)
	everyStart(t, func(t *testing.T, how start) {
		for _, p := range []policy.Policy{
			{WritePaths: []string{w.path("a"), w.path("b")}},
			private(policy.Policy{WritePaths: []string{w.path("a"), w.path("b")}}),
			private(policy.Policy{WritePaths: []string{w.path("a"), w.path("b")}, ReadPaths: []string{w.dir}}),
		} {
			for _, dir := range []string{"a/d", "b"} {
				w.mkdir(t, dir)
			}
			w.write(t, "a/f", "text")
			for _, words := range [][]string{
				{"link", w.path("a/f"), w.path("b/hard")},
				{"rename", w.path("a/f"), w.path("b/f")},
				{"rename", w.path("a/d"), w.path("b/d")},
			} {
				w.probe(t, how, p, words...).wants(t, 0, "ok\n")
			}
			w.sh(t, how, p, "mkdir a/later && mv b/f a/later/ && cat a/later/f && rm -r a/later b/*").wants(t, 0, "text")
		}
	})
}

func TestG03SpellingTricksHideAllTheSame(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "state/x")
	w.mkdir(t, "state2")
	w.write(t, "state/x/f", "secret")
	w.write(t, "state2/f", "open")
	w.link(t, "alias", "state", slotID)
	for _, spelling := range []string{"state/../state/x", "state//x", "state/x/", "./state/./x", "alias/x", "alias/../state/x/."} {
		t.Run(spelling, func(t *testing.T) {
			p := policy.Policy{WritePaths: []string{w.dir}, HiddenPaths: []string{w.dir + "/" + spelling}}
			w.probe(t, bySlotctl, p, "read", w.path("state/x/f")).wants(t, 0, "EACCES\n")
			w.probe(t, bySlotctl, p, "read", w.path("state2/f")).wants(t, 0, "ok\n")
		})
	}
}

func TestHiddenAndReadOnlyPathsThatCannotBeCoveredRefuse(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "closed/in")
	if err := os.Chown(w.path("closed"), serviceID, serviceID); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(w.path("closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range []policy.Policy{
		{HiddenPaths: []string{w.path("closed/in")}},
		{ReadOnlyOverlays: []string{w.path("closed/in")}},
		{HiddenPaths: []string{"/"}},
		{ReadOnlyOverlays: []string{"/"}},
		{PrivateRoots: []string{"/"}},
		{PrivateRoots: []string{"/etc/passwd"}},
	} {
		w.run(t, plainly, p, "/bin/true").refused(t, 125)
	}
}

func TestWorkDirStandsUnderItsCovers(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "p/ro")
	w.write(t, "p/ro/file", "text")
	w.write(t, "p/secret", "secret")
	everyStart(t, func(t *testing.T, how start) {
		p := policy.Policy{WorkDir: w.path("p/ro"), WritePaths: []string{w.path("p")}, HiddenPaths: []string{w.path("p/secret")}, ReadOnlyOverlays: []string{w.path("p/ro")}}
		got := w.sh(t, how, p, "echo x >file; cat ../secret; pwd")
		if got.stdout != w.path("p/ro")+"\n" || strings.Count(got.stderr, "\n") != 2 {
			t.Errorf("%+v", got)
		}
	})
}
