package slotcheck

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
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
	s.write(filepath.Join(dir, "status"), 0o444, fmt.Sprintf("Name:\t%.15s\nUid:\t%d\t%d\t%d\t%d\nGid:\t%d\t0\t0\t0\nGroups:\t%s\n",
		filepath.Base(p.exe), p.uid, p.uid, p.uid, p.uid, p.uid, p.groups))
	s.write(filepath.Join(dir, "stat"), 0o444, fmt.Sprintf("%d (a) b) S %d 1 1\n", p.pid, p.ppid))
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
	s.sys.Unit = func(_ context.Context, name string) (Unit, error) {
		if name == "vs-workspace.service" {
			return Unit{PID: 100, State: "active"}, nil
		}
		return Unit{State: "inactive"}, nil
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
			s.must(os.Chmod(dir, 0o770))
			s.chown(dir, scratchService, gid)
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
		{"open to others", func(s *scratch, u1 string) { s.must(os.Chmod(u1, 0o775)) }, "FAIL row: the tree of the user of slot01 is open to others (mode 0775)", "-exec chmod o-rwx {} +"},
		{"another owner", func(s *scratch, u1 string) { s.chown(u1, 0, scratchSlot) }, "FAIL row: the tree of the user of slot01 is not owned by vs", "-exec chown vs {} +"},
		{"a slot's group without the slot", func(s *scratch, u1 string) {
			s.chown(filepath.Join(filepath.Dir(u1), "u3"), scratchService, scratchSlot)
		},
			"FAIL row: a tree of a user without a slot has the group of another slot, slot01", "-exec chgrp vs {} +"},
		{"a link", func(s *scratch, u1 string) { s.must(os.Symlink("u1", filepath.Join(filepath.Dir(u1), "u4"))) }, "FAIL row: a tree of a user without a slot is not a folder", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScratch(t)
			healthy(s)
			tt.breakIt(s, filepath.Join(users(s), "u1"))
			rows := s.ask(checkTreesClosed)
			expectLine(t, rows, tt.begin, tt.end)
			for _, l := range lines(rows) {
				if strings.Contains(l, "u1") || strings.Contains(l, "u3") {
					t.Errorf("%q tells a user (case S-07)", l)
				}
			}
		})
	}
}
