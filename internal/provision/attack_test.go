package provision

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"agentworks-deploy/internal/lab/labtest"
	"agentworks-deploy/internal/report"
)

func warned(t *testing.T, rows []report.Row, check, words string) {
	t.Helper()
	for _, r := range rows {
		if r.State == report.Warn && r.Check == check && strings.Contains(r.Detail, words) {
			return
		}
	}
	t.Errorf("no WARN %s with %q in %v", check, words, rows)
}

func TestALinkOfEnvInASharedFolderStaysTheServices(t *testing.T) {
	s := newScratch(t)
	s.owned("/srv/svc/data/docs/Workflow", 0o755)
	s.file("/srv/svc/.env", "x")
	s.chown("/srv/svc/.env", serviceID, serviceID)
	s.chmod("/srv/svc/.env", 0o600)
	for from, to := range map[string]string{"/srv/svc/.env": "/srv/svc/data/docs/Workflow/envlink"} {
		if err := os.Link(s.at(from), s.at(to)); err != nil {
			t.Fatal(err)
		}
	}
	s.file("/srv/svc/data/docs/Workflow/object", "x")
	if err := os.Link(s.at("/srv/svc/data/docs/Workflow/object"), s.at("/srv/svc/data/docs/Workflow/object2")); err != nil {
		t.Fatal(err)
	}
	labtest.Settle()
	warned(t, s.provision(), "shared-folders", "1 hard-linked files are left as they are")
	s.is("/srv/svc/.env", serviceID, serviceID, 0o600)
	s.is("/srv/svc/data/docs/Workflow/object2", 0, 70000, 0o664)
}

func TestNoProgramInUsersTreesOrSharedFoldersIsSetuid(t *testing.T) {
	s := newScratch(t)
	s.owned("/srv/svc/data/docs/Downloads", 0o755)
	s.owned("/srv/svc/data/docs/_users/u1", 0o770)
	s.provision()
	s.file("/root", "x")
	for _, p := range []string{"/srv/svc/data/docs/Downloads/catsu", "/srv/svc/data/docs/_users/u1/catsu", "/srv/svc/slots/home/slot01/catsu"} {
		s.file(p, "x")
		s.chown(p, 70001, 70001)
		s.chmod(p, 0o6755)
	}
	s.chmod("/root", 0o4755)
	for from, to := range map[string]string{"/root": "/srv/svc/data/docs/Downloads/root", "/srv/svc/slots/home/slot01/catsu": "/srv/svc/data/docs/Downloads/linked"} {
		if err := os.Link(s.at(from), s.at(to)); err != nil {
			t.Fatal(err)
		}
	}
	labtest.Settle()
	s.provision()
	setIDs := func(p string) uint32 {
		var st syscall.Stat_t
		if err := syscall.Lstat(s.at(p), &st); err != nil {
			t.Fatal(err)
		}
		return st.Mode & 0o6000
	}
	for p, want := range map[string]uint32{
		"/srv/svc/data/docs/Downloads/catsu": 0, "/srv/svc/data/docs/Downloads/linked": 0, "/srv/svc/data/docs/_users/u1/catsu": 0,
		"/root": 0o4000, // one of root's has another name elsewhere: root's business
	} {
		if got := setIDs(p); got != want {
			t.Errorf("%s: %o", p, got)
		}
	}
	before := s.snapshot()
	s.provision()
	s.equal(before)
}

func TestAMountAmongUsersTreesOrInASharedFoldersPlaceIsLeftAlone(t *testing.T) {
	s := newScratch(t)
	s.dir("/out", 0o755)
	s.owned("/srv/svc/data/docs/_users/e8", 0o755)
	s.owned("/srv/svc/data/docs/Downloads", 0o755)
	s.owned("/srv/svc/data/docs/skills", 0o755)
	var rows []report.Row
	var err error
	labtest.WithMounts(t, map[string]string{s.at("/srv/svc/data/docs/_users/e8"): s.at("/out"), s.at("/srv/svc/data/docs/Downloads"): s.at("/out")}, func() {
		rows, err = s.run(false)
	})
	if report.CodeOf(err) != report.ExitState || !strings.Contains(err.Error(), "next, on the host: umount /srv/svc/data/docs/Downloads") {
		t.Errorf("%v", err)
	}
	warned(t, rows, "docs", "1 mounts in /srv/svc/data/docs/_users are left alone")
	s.is("/out", 0, 0, 0o755)
	s.is("/srv/svc/data/docs/skills", serviceID, 70000, 0o2775)
}

// The service can plant a link in the place of a shared folder; that must not
// keep the rest of the host from being put right.
func TestALinkAtWorkflowRefusesTheRunAndBlocksNoStep(t *testing.T) {
	s := newScratch(t)
	if err := os.Symlink("/etc", s.at("/srv/svc/data/docs/Workflow")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := s.run(false)
		if report.CodeOf(err) != report.ExitState || !strings.Contains(err.Error(), "Workflow is a link and not a folder; it is left alone; next, on the host: look at it, then rm /srv/svc/data/docs/Workflow") {
			t.Errorf("%v", err)
		}
		if strings.Count(err.Error(), "left alone") != 1 {
			t.Errorf("said more than once: %v", err)
		}
	}
	s.read("/etc/sudoers.d/agentworks-slots")
}

func TestALowerCountLocksNoHolderOut(t *testing.T) {
	s := newScratch(t)
	s.provision()
	s.file("/etc/agentworks/slots.json", `{"slots":{"slot03":"u3","slot01":"u1"}}`)
	s.host.Slots.Count = 2
	s.refused(report.ExitState, "would lock out who holds slot03;", "raise slots.count", "slots status")
	s.host.Slots.Count = 3
	s.provision()
}

func TestRefusalsOfProvisionSayTheNextStep(t *testing.T) {
	s := newScratch(t)
	s.host.Name = "box"
	s.provision()
	rule := "/etc/sudoers.d/agentworks-slots"
	if err := errors.Join(os.Remove(s.at(rule)), os.Symlink("/etc/passwd", s.at(rule))); err != nil {
		t.Fatal(err)
	}
	s.refused(report.ExitState, "is a link and not a regular file", "rm "+rule)
	if err := os.Remove(s.at(rule)); err != nil {
		t.Fatal(err)
	}
	s.provision()

	table := "/etc/agentworks/slots.json"
	if err := errors.Join(os.Remove(s.at(table)), syscall.Mkfifo(s.at(table), 0o640)); err != nil {
		t.Fatal(err)
	}
	s.refused(report.ExitState, "is a FIFO and not a regular file", "rm "+table)
	if err := os.Remove(s.at(table)); err != nil {
		t.Fatal(err)
	}
	s.provision()

	s.program("visudo", `case "$*" in *-f*) exit 0;; esac; echo "/etc/sudoers.d/zz:1:6: syntax error"; echo "this is"; echo "     ^~"; exit 1`)
	s.refused(report.ExitState, "/etc/sudoers.d/zz:1:6: syntax error; this is; ^~", "next, on the host: visudo -f /etc/sudoers.d/zz; then agentworks-deploy provision box")
}

func TestUsersJSONIsClosed(t *testing.T) {
	s := newScratch(t)
	s.owned("/srv/svc/data/docs/config", 0o700)
	s.file("/srv/svc/data/docs/config/users.json", "{}")
	s.chown("/srv/svc/data/docs/config/users.json", serviceID, serviceID)
	s.chmod("/srv/svc/data/docs/config/users.json", 0o664)
	s.provision()
	s.is("/srv/svc/data/docs/config/users.json", serviceID, serviceID, 0o600)
}
