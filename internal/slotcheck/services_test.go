package slotcheck

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/units"
)

// fakeProcess is one process of a scratch host's /proc.
type fakeProcess struct {
	pid, ppid, uid int
	groups         string
	cgroup         string
	exe, cwd       string
	words          []string
}

func (s *scratch) process(p fakeProcess) {
	s.t.Helper()
	dir := filepath.Join(s.sys.Proc, strconv.Itoa(p.pid))
	s.write(filepath.Join(dir, "status"), 0o444, fmt.Sprintf("Name:\t%.15s\nPPid:\t%d\nUid:\t%d\t%d\t%d\t%d\nGid:\t%d\t0\t0\t0\nGroups:\t%s\n",
		filepath.Base(p.exe), p.ppid, p.uid, p.uid, p.uid, p.uid, p.uid, p.groups))
	s.write(filepath.Join(dir, "cgroup"), 0o444, "0::"+p.cgroup+"\n")
	s.write(filepath.Join(dir, "cmdline"), 0o444, strings.Join(p.words, "\x00")+"\x00")
	s.must(os.Symlink(p.exe, filepath.Join(dir, "exe")))
	if p.cwd != "" {
		s.must(os.Symlink(p.cwd, filepath.Join(dir, "cwd")))
	}
}

const unitGroup = "/user.slice/user-1.slice/user@1.service/app.slice/vs-workspace.service"

// withServices runs the workspace service as pid 100 of release r1; the agent
// does not run.
func withServices(t *testing.T, groups string) *scratch {
	s := newScratch(t)
	s.process(fakeProcess{pid: 100, ppid: 1, uid: scratchService, groups: groups, cgroup: unitGroup,
		exe: filepath.Join(s.host.Layout().Releases(), "r1/bin/vs-workspace"), words: []string{"vs-workspace"}})
	s.sys.Unit = func(_ context.Context, name string) (units.Running, error) {
		if name == "vs-workspace.service" {
			return units.Running{PID: 100, State: "active"}, nil
		}
		return units.Running{State: "inactive"}, nil
	}
	s.write(filepath.Join(s.sys.Proc, "100/environ"), 0o400, "AGENTWORKS_SLOTS=on\x00AGENTWORKS_SLOTCTL="+s.slotctl()+"\x00AGENTWORKS_SLOTS_FILE="+s.table()+"\x00")
	return s
}

func (s *scratch) ask(c func(context.Context, *audit, subject) []report.Row) []report.Row {
	s.t.Helper()
	a := s.audit()
	a.loadTable()
	return a.named("row", c(context.Background(), a, subject{}))
}

func TestP11ServiceGroupsAreTheKernels(t *testing.T) {
	all := "61000 61001 61002 61003 61004"
	expectLine(t, withServices(t, all).ask(checkServiceGroups), "PASS row: 1 service(s) hold all 3 slot groups", "")
	s := withServices(t, "61000 61001")
	expectLine(t, s.ask(checkServiceGroups), "FAIL row: vs-workspace.service (pid 100) lacks 2 of 3 slot groups, slot02 first", "-- fix: systemctl restart user@61000.service")
	s.host.Release.Manager = "system"
	expectLine(t, s.ask(checkServiceGroups), "FAIL row: ", "-- fix: systemctl restart vs-workspace.service")
	expectLine(t, newScratch(t).ask(checkServiceGroups), "SKIP row: no service runs", "")
}

func TestAServiceMayBeNamedWithItsEnding(t *testing.T) {
	s := withServices(t, "")
	s.host.Release.Services = []string{"vs-workspace.service", "vs-agent"}
	running, idle, err := s.audit().services(context.Background())
	s.must(err)
	if len(running) != 1 || running[0].Unit != "vs-workspace.service" || !slices.Equal(idle, []string{"vs-agent.service"}) {
		t.Errorf("%+v, idle %q", running, idle)
	}
}

func TestLiveReleaseIsTheOneThatRuns(t *testing.T) {
	s := withServices(t, "")
	expectLine(t, s.ask(checkLiveRelease), "PASS row: 1 service(s) run r1; not running: vs-agent.service", "")
	l := s.host.Layout()
	s.must(os.Mkdir(filepath.Join(l.Releases(), "r2"), 0o755))
	s.must(os.Remove(l.Current()))
	s.must(os.Symlink("releases/r2", l.Current()))
	expectLine(t, s.ask(checkLiveRelease), "FAIL row: vs-workspace.service: not of the release that current names, r2", "-- fix: systemctl --user -M vs@ restart vs-workspace.service")
	s.must(os.Remove(l.Current()))
	expectLine(t, s.ask(checkLiveRelease), "FAIL row: current names no release", "deploy lab")
}

func TestV07CodeOutsideTheRelease(t *testing.T) {
	in := func(s *scratch, rel string) string { return filepath.Join(s.host.Layout().Releases(), "r1", rel) }
	tests := []struct {
		name    string
		process func(s *scratch) fakeProcess
		want    string
	}{
		{"the release's own script", func(s *scratch) fakeProcess {
			s.write(in(s, "tools/a.py"), 0o644, "")
			return fakeProcess{words: []string{"python3", "-u", in(s, "tools/a.py")}}
		}, "PASS row: 2 process(es)"},
		{"the same, by a relative name", func(s *scratch) fakeProcess {
			s.write(in(s, "tools/a.py"), 0o644, "")
			return fakeProcess{words: []string{"python3", "a.py"}, cwd: in(s, "tools")}
		}, "PASS row: 2 process(es)"},
		{"a script elsewhere", func(s *scratch) fakeProcess {
			return fakeProcess{words: []string{"python3", "-I", "/tmp/secret-word.py"}}
		}, "FAIL row: python3.11 (pid 101, started by vs-workspace, pid 100) runs a script outside the release"},
		{"a way out of the release", func(s *scratch) fakeProcess {
			return fakeProcess{words: []string{"python3", in(s, "../../x.py")}}
		}, "FAIL row: python3.11 (pid 101"},
		{"a link in the release to a script elsewhere", func(s *scratch) fakeProcess {
			s.write(filepath.Join(s.dir, "x.py"), 0o644, "")
			s.must(os.Symlink(filepath.Join(s.dir, "x.py"), in(s, "x.py")))
			return fakeProcess{words: []string{"python3", in(s, "x.py")}}
		}, "FAIL row: python3.11 (pid 101"},
		{"allowed by the host file", func(s *scratch) fakeProcess {
			s.host.HostPrograms = []string{"/opt/backup/run.py"}
			return fakeProcess{words: []string{"python3", "/opt/backup/run.py"}}
		}, "PASS row: 2 process(es)"},
		{"words", func(*scratch) fakeProcess { return fakeProcess{words: []string{"python3", "-c", "secret-word"}} },
			"FAIL row: python3.11 (pid 101, started by vs-workspace, pid 100) runs code from its command line"},
		{"standard input", func(*scratch) fakeProcess { return fakeProcess{words: []string{"python3"}} }, "FAIL row: python3.11 (pid 101"},
		{"left the control group", func(*scratch) fakeProcess {
			return fakeProcess{cgroup: "/elsewhere", words: []string{"python3", "-c", "x"}}
		}, "FAIL row: python3.11 (pid 101"},
		{"a slot's", func(*scratch) fakeProcess {
			return fakeProcess{uid: scratchSlot, words: []string{"python3", "-c", "x"}}
		}, "PASS row: 1 process(es)"},
		{"no interpreter", func(*scratch) fakeProcess { return fakeProcess{exe: "/bin/dash", words: []string{"sh", "-c", "x"}} }, "PASS row: 2 process(es)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := withServices(t, "")
			p := tt.process(s)
			p.pid, p.ppid = 101, 100
			if p.uid == 0 {
				p.uid = scratchService
			}
			if p.cgroup == "" {
				p.cgroup = unitGroup
			}
			if p.exe == "" {
				p.exe = "/usr/bin/python3.11"
			}
			s.process(p)
			rows := s.ask(checkHostExec)
			expectLine(t, rows, tt.want, "")
			if text := strings.Join(lines(rows), "\n"); strings.Contains(text, "secret-word") {
				t.Errorf("%s tells the words", text)
			}
		})
	}
}

func TestRetiredToolsInTheRelease(t *testing.T) {
	const tool = "trigger_and_auto_notify"
	s := withServices(t, "")
	s.host.Retired = []string{tool, "other_tool"}
	expectLine(t, s.ask(checkHostExec), "PASS row: ", "")
	file := filepath.Join(s.host.Layout().Releases(), "r1/bin/vs-agent")
	// Across the border of two pieces.
	s.write(file, 0o755, strings.Repeat("x", 1<<20)+tool+"\x00")
	expectLine(t, s.ask(checkHostExec), "FAIL row: the release holds retired tools: "+tool, "")
	s.write(file, 0o755, "")
	s.write(filepath.Join(filepath.Dir(file), tool+".md"), 0o644, "")
	expectLine(t, s.ask(checkHostExec), "FAIL row: the release holds retired tools: "+tool, "")
}

func TestTreesClosed(t *testing.T) {
	users := func(s *scratch) string { return filepath.Join(s.host.Layout().Docs, "_users") }
	healthy := func(s *scratch) {
		for user, gid := range map[string]int{"u1": scratchSlot, "u2": scratchSlot + 1, "u3": scratchService, "_shared": 0} {
			dir := filepath.Join(users(s), user)
			s.must(os.MkdirAll(dir, 0o755))
			s.chown(dir, scratchService, gid)
			s.must(unix.Chmod(dir, slotMode))
		}
	}
	tests := []struct {
		name       string
		breakIt    func(s *scratch, u1 string)
		begin, end string
	}{
		{"healthy", func(*scratch, string) {}, "PASS row: 3 tree(s)", ""},
		{"another slot's group", func(s *scratch, u1 string) { s.chown(u1, scratchService, scratchSlot+1) },
			"FAIL row: the tree of the user of slot01 has the group of another slot, slot02", "-exec chgrp slot01 {} +"},
		{"open to others", func(s *scratch, u1 string) { s.must(unix.Chmod(u1, 0o2775)) }, "FAIL row: the tree of the user of slot01 is open to others (mode 2775)", "-exec chmod 2770 {} +"},
		{"closed to its slot", func(s *scratch, u1 string) { s.must(unix.Chmod(u1, 0o700)) }, "FAIL row: the tree of the user of slot01 has mode 0700, not 2770", "-exec chmod 2770 {} +"},
		{"another slot in the ACL", func(s *scratch, u1 string) {
			s.acl(u1, safefs.AccessACL, safefs.ACLFromMode(0o770).WithGroup(scratchSlot+1, 7))
		}, "FAIL row: the tree of the user of slot01 has an ACL entry for group slot02", "-exec setfacl -b {} +"},
		{"another owner", func(s *scratch, u1 string) { s.chown(u1, 0, scratchSlot) }, "FAIL row: the tree of the user of slot01 is not owned by vs", "-exec chown vs {} +"},
		{"a slot's group without the slot", func(s *scratch, u1 string) {
			s.chown(filepath.Join(filepath.Dir(u1), "u3"), scratchService, scratchSlot)
		},
			"FAIL row: a tree of a user without a slot has the group of another slot, slot01", "-exec chgrp vs {} +"},
		{"a link", func(s *scratch, u1 string) { s.must(os.Symlink("u1", filepath.Join(filepath.Dir(u1), "u4"))) }, "FAIL row: a tree of a user without a slot is not a folder", ""},
		{"another slot in the default ACL", func(s *scratch, u1 string) {
			s.acl(u1, safefs.DefaultACL, safefs.ACLFromMode(0o770).WithGroup(scratchSlot+1, 7))
		}, "FAIL row: the tree of the user of slot01 has a default ACL entry for group slot02", "-exec setfacl -d -x g:61002 {} +"},
		// What an assign once did to a link of .env in a tree.
		{".env opened to a slot", func(s *scratch, _ string) {
			env := s.host.Layout().EnvFile()
			s.chown(env, scratchService, scratchSlot)
			s.must(os.Chmod(env, 0o660))
		}, "FAIL row: SCRATCH/app/.env has group slot01 and mode 0660, not 0600", "-- fix: chmod 0600 SCRATCH/app/.env"},
		{".env of root", func(s *scratch, _ string) { s.chown(s.host.Layout().EnvFile(), 0, 0) },
			"FAIL row: SCRATCH/app/.env is owned by uid 0, not vs", "-- fix: chown vs SCRATCH/app/.env"},
		{".env under a second name", func(s *scratch, u1 string) {
			s.must(os.Link(s.host.Layout().EnvFile(), filepath.Join(u1, "envlink")))
		}, "WARN row: SCRATCH/app/.env has 2 names", "find / -xdev -samefile SCRATCH/app/.env"},
		{"users.json opened", func(s *scratch, _ string) {
			s.write(s.host.Layout().UsersFile(), 0o644, "{}")
			s.chown(s.host.Layout().UsersFile(), scratchService, scratchService)
		}, "FAIL row: <docs>/config/users.json has group vs and mode 0644, not 0600", "config/users.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScratch(t)
			healthy(s)
			tt.breakIt(s, filepath.Join(users(s), "u1"))
			rows := s.ask(checkTreesClosed)
			expectLine(t, rows, strings.ReplaceAll(tt.begin, "SCRATCH", s.dir), strings.ReplaceAll(tt.end, "SCRATCH", s.dir))
			for _, l := range lines(rows) {
				if strings.Contains(l, "u1") || strings.Contains(l, "u3") {
					t.Errorf("%q tells a user (case S-07)", l)
				}
			}
		})
	}
}

// A fix once opened a slot's own folder to everybody, sixteen times.
func TestNoFixOpensASlotsFoldersToOthers(t *testing.T) {
	s := newScratch(t)
	l := s.host.Layout()
	for _, dir := range []string{filepath.Dir(s.dir), s.dir} {
		s.must(os.Chmod(dir, 0o755))
	}
	for _, dir := range []string{l.SlotState("slot01"), l.SlotHome("slot01"), l.SlotRun("slot01"), l.DocsConfig(), filepath.Join(l.UserTree("u1"), "Chats")} {
		s.must(os.MkdirAll(dir, 0o755))
		s.must(os.Chmod(dir, 0o770))
		s.chown(dir, scratchService, scratchService)
		a := s.audit()
		a.loadTable()
		acct, _ := a.accounts.User("slot01")
		at, fix := a.closedTo(dir, a.subject(acct, "u1"))
		if at != dir || fix == nil || strings.Contains(fixText(fix), "o+") {
			t.Errorf("%s: %s, %+v", dir, at, fix)
		}
	}
}

func TestWhatSlotsLeaveInSharedFoldersIsSeen(t *testing.T) {
	s := newScratch(t)
	downloads := filepath.Join(s.host.Layout().Docs, "Downloads")
	for name, mode := range map[string]uint32{"mine": 0o600, "catsu": 0o6755} {
		file := filepath.Join(downloads, name)
		s.write(file, 0o600, "x")
		s.chown(file, scratchSlot+2, scratchSlot+2) // slot49's
		s.must(unix.Chmod(file, mode))
	}
	a := s.audit()
	a.loadTable()
	acct, _ := a.accounts.User("slot49")
	rows := a.sharedFiles(t.Context(), []subject{a.subject(acct, "")})
	expectLine(t, rows, "FAIL : 1 file(s) of slots in the shared folders are setuid or setgid", "provision lab")
	expectLine(t, rows, "WARN  [slot49]: it holds nobody, and 2 file(s)", "")
	s.must(os.Remove(filepath.Join(downloads, "catsu")))
	s.must(os.Remove(filepath.Join(downloads, "mine")))
	if rows := a.sharedFiles(t.Context(), []subject{a.subject(acct, "")}); rows != nil {
		t.Errorf("%v", rows)
	}
}
