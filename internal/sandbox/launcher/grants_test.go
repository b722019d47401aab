package launcher

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/sandbox/policy"
)

// private is a policy that needs a mount namespace.
func private(p policy.Policy) policy.Policy {
	p.PrivateTmp = true
	return p
}

func TestL01AnUnreadableGrantIsLeftOutAndNamed(t *testing.T) {
	w := newWorld(t)
	profile := w.mkdir(t, "profile/p--browser")
	w.write(t, "profile/p--browser/Cookies", "cookie")
	if err := os.Chown(w.path("profile"), serviceID, serviceID); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(w.path("profile"), 0o700); err != nil {
		t.Fatal(err)
	}
	everyStart(t, func(t *testing.T, how start) {
		p := private(policy.Policy{WritePaths: []string{profile}, ReadPaths: []string{profile}})
		got := w.sh(t, how, p, "pwd; cat "+profile+"/Cookies 2>/dev/null")
		got.wants(t, 1, w.dir+"\n")
		want := "SANDBOX_GRANT_SKIPPED: " + profile + " is not accessible to this account; it is not granted\n"
		if got.stderr != want {
			t.Errorf("stderr %q, want %q", got.stderr, want)
		}
	})
}

func TestL02AnAbsentGrantIsIgnoredWithoutAWord(t *testing.T) {
	w := newWorld(t)
	everyStart(t, func(t *testing.T, how start) {
		p := private(policy.Policy{ReadPaths: []string{w.path("absent/deep")}, WritePaths: []string{w.path("none")}})
		got := w.run(t, how, p, "/bin/true")
		got.wants(t, 0, "")
		if got.stderr != "" {
			t.Errorf("stderr %q", got.stderr)
		}
	})
}

func TestL13TheProgramIsAbsoluteAndItsErrorsAreTold(t *testing.T) {
	w := newWorld(t)
	notProgram := w.write(t, "text", "no program\n")
	if err := os.Chmod(notProgram, 0o755); err != nil {
		t.Fatal(err)
	}
	p := policy.Policy{ReadPaths: []string{w.dir}}
	w.run(t, plainly, p, "ls").refused(t, 126, "execute ls: ")
	w.run(t, plainly, p, "/usr/bin/absent").refused(t, 127, "execute /usr/bin/absent: no such file")
	w.run(t, plainly, p, "/etc/passwd").refused(t, 126, "execute /etc/passwd: permission denied")
	w.run(t, plainly, p, notProgram).refused(t, 126, "execute "+notProgram+": exec format error")
	w.run(t, plainly, p, w.dir).refused(t, 126, "execute "+w.dir+": ")
}

func TestL14ExtraToolsFolder(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "tools/bin")
	tool := w.write(t, "tools/bin/tool", "#!/bin/sh\necho tool\n")
	if err := os.Chmod(tool, 0o755); err != nil {
		t.Fatal(err)
	}
	everyStart(t, func(t *testing.T, how start) {
		w := *w
		w.run(t, how, private(policy.Policy{}), tool).refused(t, 126, "execute "+tool)
		w.env = append(w.env, "SANDBOX_EXTRA_SYSTEM_PATHS="+w.path("tools/bin")+"::/nonexistent")
		w.run(t, how, private(policy.Policy{}), tool).wants(t, 0, "tool\n")
		w.env[len(w.env)-1] = "SANDBOX_EXTRA_SYSTEM_PATHS=tools"
		w.run(t, how, private(policy.Policy{}), "/bin/true").refused(t, 125, "SANDBOX_EXTRA_SYSTEM_PATHS")
	})
}

func TestL15SingleFilesAndListOnlyFolders(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "d")
	file, sibling := w.write(t, "d/file", "old"), w.write(t, "d/sibling", "old")
	everyStart(t, func(t *testing.T, how start) {
		p := private(policy.Policy{WritePaths: []string{file}, ListPaths: []string{"/"}})
		w.sh(t, how, p, "echo new >"+file+" && cat "+file).wants(t, 0, "new\n")
		w.probe(t, how, p, "write", sibling).wants(t, 0, "EACCES\n")
		w.probe(t, how, p, "read", sibling).wants(t, 0, "EACCES\n")
		w.sh(t, how, p, "ls / | grep -x srv; ls "+w.dir).wants(t, 0, "srv\nd\n")
	})
}

func TestS37GrantsOnEveryFileType(t *testing.T) {
	w := newWorld(t)
	file, dir := w.write(t, "file", "x"), w.mkdir(t, "dir")
	fifo, socket := w.path("fifo"), w.path("socket")
	for name, mode := range map[string]uint32{fifo: unix.S_IFIFO, socket: unix.S_IFSOCK} {
		if err := unix.Mknod(name, mode|0o666, 0); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{file, dir, fifo, socket, "/dev/null", "/dev/zero"}
	everyStart(t, func(t *testing.T, how start) {
		for _, p := range []policy.Policy{{ReadPaths: all}, {WritePaths: all}, {ListPaths: all}, private(policy.Policy{ReadPaths: all})} {
			w.run(t, how, p, "/bin/true").wants(t, 0, "")
		}
	})
}

func TestS38EveryOtherErrorOfAGrantRefuses(t *testing.T) {
	w := newWorld(t)
	file := w.write(t, "file", "x")
	loop := w.link(t, "loop", "loop", 0)
	cases := []struct{ name, path, want string }{
		{"ENOTDIR", file + "/below", "not a directory"},
		{"ENOTDIR by a slash", file + "/", "not a directory"},
		{"ELOOP", loop, "too many levels"},
		{"ENAMETOOLONG", w.path(strings.Repeat("n", 300)), "file name too long"},
		{"a magic link", "/proc/self/cwd", "too many levels"},
		{"a magic link further on", "/proc/self/root/etc", "too many levels"},
	}
	everyStart(t, func(t *testing.T, how start) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				w.run(t, how, private(policy.Policy{ReadPaths: []string{c.path}}), "/bin/true").refused(t, 125, "grant ", c.want)
			})
		}
	})
	t.Run("EIO", func(t *testing.T) {
		got := w.filtered(t, unix.SYS_OPENAT2, unix.EIO, fmt.Sprintf(`{"work_dir":%q,"read_paths":["/srv"]}`, w.dir))
		got.refused(t, 125, "grant /srv: input/output error")
	})
}

func TestS38LinksOnTheWayToAGrant(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "target")
	w.write(t, "target/file", "text\n")
	top := strings.TrimSuffix(w.dir, "/ws")
	top = strings.TrimPrefix(top, "/")
	folder := func(name string, owner int, mode os.FileMode) string {
		dir := "/" + top + "/" + name
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, owner, slotID); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	link := func(dir, name string, owner int) string {
		if err := os.Symlink(w.path("target"), dir+"/"+name); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(dir+"/"+name, owner, owner); err != nil {
			t.Fatal(err)
		}
		return dir + "/" + name
	}
	closed := folder("closed", serviceID, 0o755)
	ownGroup := folder("tree", serviceID, 0o2770) // a user's tree: the slot's group may write
	shared := folder("shared", serviceID, 0o777)
	cases := []struct {
		name, path   string
		plain, inNS  bool // followed
		landlockOnly bool
	}{
		{"root's", link(closed, "root", 0), true, true, true},
		{"the service's", link(closed, "service", serviceID), true, true, true},
		{"the slot's own", link(closed, "own", slotID), false, false, false},
		{"the service's in a user's tree", link(ownGroup, "service", serviceID), true, true, true},
		{"the slot's own in a user's tree", link(ownGroup, "own", slotID), false, false, false},
		{"another slot's in a shared folder", link(shared, "other", otherID), false, false, false},
		// Inside slotctl's namespace it cannot be told from the one before.
		{"the service's in a shared folder", link(shared, "service", serviceID), true, false, true},
	}
	check := func(t *testing.T, followed bool, got result) {
		if followed {
			got.wants(t, 0, "text\n")
		} else {
			got.refused(t, 125, "grant ", "too many levels of symbolic links")
		}
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := policy.Policy{ReadPaths: []string{c.path}}
			check(t, c.landlockOnly, w.run(t, plainly, p, "/bin/cat", c.path+"/file"))
			check(t, c.plain, w.run(t, plainly, private(p), "/bin/cat", c.path+"/file"))
			check(t, c.inNS, w.run(t, bySlotctl, private(p), "/bin/cat", c.path+"/file"))
			check(t, c.inNS, w.run(t, byOldest, private(p), "/bin/cat", c.path+"/file"))
		})
	}
}

func TestS29TheWorkFolderIsARealOne(t *testing.T) {
	w := newWorld(t)
	own := w.link(t, "own", "/proc/self/fd/3", slotID)
	roots := w.link(t, "roots", "/proc/self/cwd", 0)
	file := w.write(t, "file", "")
	everyStart(t, func(t *testing.T, how start) {
		for _, dir := range []string{"/proc/self/fd/3", "/proc/1/cwd", "/proc/self/cwd", "/proc/self/root", own, roots, file, w.path("absent")} {
			w.run(t, how, private(policy.Policy{WorkDir: dir}), "/bin/pwd").refused(t, 125, "work_dir")
		}
	})
}

func TestPolicyErrorsRefuse(t *testing.T) {
	w := newWorld(t)
	cases := []struct{ name, text, want string }{
		{"unknown field", `{"work_dir":"/","reads":[]}`, `unknown field "reads"`},
		{"wrong type", `{"work_dir":"/","private_tmp":1}`, "private_tmp"},
		{"no policy", ``, "not a JSON object"},
		{"no work_dir", `{}`, "work_dir"},
	}
	everyStart(t, func(t *testing.T, how start) {
		for _, c := range cases {
			w.runText(t, how, c.text, "/bin/true").refused(t, 125, c.want)
		}
	})
}

func TestThePolicyIsReadFromAFileToo(t *testing.T) {
	w := newWorld(t)
	config := w.write(t, "policy.json", fmt.Sprintf(`{"work_dir":%q,"private_tmp":true,"browser_scoped":true}`, w.dir))
	everyStart(t, func(t *testing.T, how start) {
		finish(t, w.command(how, runner, "--config", config, "--", "/bin/pwd")).wants(t, 0, w.dir+"\n")
		finish(t, w.command(how, runner, "--config", w.path("absent"), "--", "/bin/pwd")).refused(t, 125, "config", "no such file")
		finish(t, w.command(how, runner)).refused(t, 125, "usage: ")
	})
}

func TestSharedBrowserFoldersAreForUnscopedCommandsOnly(t *testing.T) {
	w := newWorld(t)
	w.mkdir(t, "profile")
	w.mkdir(t, "profile-projects")
	w.mkdir(t, "closed")
	if err := os.Chown(w.path("closed"), serviceID, serviceID); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(w.path("closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "AGENT_BROWSER_SHARED_PROFILE="+w.path("profile"), "AGENT_BROWSER_PROFILE_ROOT="+w.path("closed/deep"))
	run := func(scoped bool) result {
		text := fmt.Sprintf(`{"work_dir":%q,"browser_scoped":%v}`, w.dir, scoped)
		return w.runText(t, plainly, text, "/bin/sh", "-c", ": >profile/x && : >profile-projects/x && rm profile/x profile-projects/x")
	}
	got := run(false)
	got.wants(t, 0, "")
	if got.stderr != "" {
		t.Errorf("stderr %q", got.stderr)
	}
	if got := run(true); got.code == 0 {
		t.Errorf("a scoped command: %+v", got)
	}
}

// filtered runs the launcher, started plainly, with one system call failing.
func (w *world) filtered(t *testing.T, call int, errno unix.Errno, text string) result {
	t.Helper()
	config := w.write(t, "filtered.json", text)
	cmd := w.command(plainly, probe, fmt.Sprint(call), fmt.Sprint(int(errno)), runner, "--config", config, "--", "/bin/true")
	cmd.Env = append(cmd.Env, roleVariable+"=seccomp")
	return finish(t, cmd)
}
