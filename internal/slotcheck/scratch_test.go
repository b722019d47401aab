package slotcheck

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/units"
)

// The ids of the scratch host's accounts. They need not exist on the machine.
const scratchService, scratchSlot = 61000, 61001

// scratch is a host in a folder: files are real, accounts are told.
type scratch struct {
	t    *testing.T
	host hosts.Host
	sys  System
	dir  string
}

func newScratch(t *testing.T) *scratch {
	t.Helper()
	dir := t.TempDir()
	s := &scratch{t: t, dir: dir}
	s.host = hosts.Host{Name: "lab", Product: "vs", Paths: hosts.Paths{App: filepath.Join(dir, "app")}, Slots: hosts.Slots{Prefix: "slot", Count: 50}}
	l := s.host.Layout()
	var passwd, group strings.Builder
	for i, name := range []string{"vs", "slot01", "slot02", "slot49", "slot50"} {
		home := l.SlotHome(name)
		if name == "slot50" {
			home = "/elsewhere"
		}
		fmt.Fprintf(&passwd, "%s:x:%d:%d::%s:/bin/sh\n", name, scratchService+i, scratchService+i, home)
		fmt.Fprintf(&group, "%s:x:%d:vs\n", name, scratchService+i)
	}
	fmt.Fprintf(&group, "slotshared:x:%d:vs\n", scratchService+90)
	s.sys = System{
		Proc: filepath.Join(dir, "proc"), Etc: filepath.Join(dir, "etc"), Sudo: filepath.Join(dir, "sudo"),
		Getent: func(_ context.Context, database string, keys ...string) ([]byte, error) {
			switch {
			case len(keys) > 0:
				return nil, nil
			case database == "passwd":
				return []byte(passwd.String()), nil
			}
			return []byte(group.String()), nil
		},
		Unit: func(context.Context, string) (units.Running, error) { return units.Running{State: "inactive"}, nil },
	}
	s.write(l.EnvFile(), 0o600, "AGENTWORKS_SLOTS=on\nAGENTWORKS_SLOTCTL="+s.slotctl()+"\nAGENTWORKS_SLOTS_FILE="+s.table()+"\n")
	s.chown(l.EnvFile(), scratchService, scratchService)
	s.write(s.slotctl(), 0o755, "")
	s.write(s.sys.Sudo, 0o755|os.ModeSetuid, "")
	s.write(filepath.Join(s.sys.Etc, "sudoers"), 0o440, "")
	s.must(os.MkdirAll(filepath.Join(s.sys.Etc, "sudoers.d"), 0o755))
	s.write(s.config(), 0o644, fmt.Sprintf(`{"slot_prefix":"slot","allowed_exec":[%q],"allowed_cwd":[%q],"slot_run_root":%q,"slot_state_root":%q,"docs_root":%q}`,
		l.LauncherGlob(), l.Docs, l.SlotRuns(), l.SlotStates(), l.Docs))
	s.write(s.table(), 0o640, `{"slots":{"slot01":"u1","slot02":"u2"}}`)
	s.chown(s.table(), 0, scratchService)
	s.write(filepath.Join(l.Releases(), "r1/bin", hosts.LauncherName), 0o755, "")
	s.must(os.Symlink("releases/r1", l.Current()))
	s.must(os.MkdirAll(s.sys.Proc, 0o755))
	for _, d := range []string{"Workflow/wf1", "_users/u1/" + crewProjects + "/u1crew", "_users/u1/" + codeProjects + "/u1code", "_users/u2/" + crewProjects} {
		s.must(os.MkdirAll(filepath.Join(l.Docs, d), 0o755))
	}
	return s
}

func (s *scratch) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scratch) write(file string, mode os.FileMode, text string) {
	s.t.Helper()
	s.must(os.MkdirAll(filepath.Dir(file), 0o755))
	s.must(os.WriteFile(file, []byte(text), mode))
	s.must(os.Chmod(file, mode))
}

func (s *scratch) chown(file string, uid, gid int) {
	s.t.Helper()
	s.must(os.Chown(file, uid, gid))
}

func (s *scratch) acl(file string, kind safefs.ACLKind, list safefs.ACL) {
	s.t.Helper()
	s.must(unix.Setxattr(file, string(kind), list.Encode(), 0))
}

func (s *scratch) slotctl() string { return filepath.Join(s.dir, "libexec/slotctl") }
func (s *scratch) config() string  { return filepath.Join(s.dir, "libexec/slotctl.json") }
func (s *scratch) table() string   { return filepath.Join(s.dir, "etc/slots.json") }

// audit is an audit of the scratch host with its facts found.
func (s *scratch) audit(change ...func(*Ask)) *audit {
	s.t.Helper()
	a := &audit{sys: s.sys, ask: Ask{Host: s.host}, layout: s.host.Layout()}
	for _, c := range change {
		c(&a.ask)
	}
	settings, _, err := loadSettings(context.Background(), s.sys, &s.host)
	s.must(err)
	s.must(a.derive(context.Background(), settings))
	return a
}

// lines writes rows as "FAIL check [slot]: detail -- fix: words".
func lines(rows []report.Row) []string {
	var out []string
	for _, r := range rows {
		line := string(r.State) + " " + r.Check
		if r.Slot != "" {
			line += " [" + r.Slot + "]"
		}
		line += ": " + r.Detail
		if r.Fix != nil {
			line += " -- fix: " + fixText(r.Fix)
		}
		out = append(out, line)
	}
	return out
}

// expectLine wants one row that begins and ends as asked.
func expectLine(t *testing.T, rows []report.Row, begin, end string) {
	t.Helper()
	if !slices.ContainsFunc(lines(rows), func(l string) bool { return strings.HasPrefix(l, begin) && strings.HasSuffix(l, end) }) {
		t.Errorf("no row %q … %q in\n%s", begin, end, strings.Join(lines(rows), "\n"))
	}
}
