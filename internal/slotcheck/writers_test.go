package slotcheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// TestNobodyElseMayWriteOnTheWay: each way in which somebody besides root, or
// besides root and the service, may write at a folder, and the least that ends it.
func TestNobodyElseMayWriteOnTheWay(t *testing.T) {
	const mode = 0o755
	list := func(m uint32, gid int, perm uint16) safefs.ACL { return safefs.ACLFromMode(m).WithGroup(gid, perm) }
	tests := []struct {
		name     string
		uid, gid int
		mode     uint32
		acl      safefs.ACL
		root     string // the fix where only root may write; empty is all right
		service  string // the same where the service may too
	}{
		{name: "closed", mode: mode},
		{name: "root's own group", mode: 0o775},
		{name: "everybody", mode: 0o777, root: "chmod go-w", service: "chmod go-w"},
		{name: "everybody, sticky", mode: 0o1777, root: "chmod go-w", service: "chmod go-w"},
		{name: "the service's", uid: scratchService, gid: scratchService, mode: mode, root: "chown root"},
		{name: "the service's group", gid: scratchService, mode: 0o775, root: "chmod go-w"},
		{name: "a slot's", uid: scratchSlot, mode: mode, root: "chown root", service: "chown vs"},
		{name: "a slot's group", gid: scratchSlot, mode: 0o775, root: "chmod go-w", service: "chmod go-w"},
		{name: "an entry for a slot", mode: mode, acl: list(mode, scratchSlot, 7), root: "setfacl -b", service: "setfacl -b"},
		{name: "an entry that only passes", mode: mode, acl: list(mode, scratchSlot, 1)},
		{name: "an entry for the service", mode: mode, acl: list(mode, scratchService, 7), root: "setfacl -b"},
		{name: "one of two entries", mode: mode, acl: list(mode, scratchSlot, 7).WithGroup(scratchSlot+1, 1),
			root: "setfacl -x g:61001", service: "setfacl -x g:61001"},
		{name: "an entry and everybody", mode: 0o757, acl: list(0o757, scratchSlot, 7), root: "setfacl -b -m o::r-x", service: "setfacl -b -m o::r-x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScratch(t)
			a := s.audit()
			dir := filepath.Join(s.dir, "folder")
			s.must(os.Mkdir(dir, 0o700))
			s.chown(dir, tt.uid, tt.gid)
			s.must(unix.Chmod(dir, tt.mode))
			if tt.acl != nil {
				s.acl(dir, safefs.AccessACL, tt.acl)
			}
			for fix, ok := range map[string]trust{tt.root: rootAlone(), "service " + tt.service: a.andService()} {
				fix = strings.TrimPrefix(fix, "service ")
				rows := a.writers(dir, ok)
				switch {
				case fix == "" && rows != nil:
					t.Errorf("owner %s: %s", ok.owner, lines(rows))
				case fix != "" && (len(rows) != 1 || fixText(rows[0].Fix) != fix+" "+dir):
					t.Errorf("owner %s: %s, want fix %q", ok.owner, lines(rows), fix)
				}
			}
		})
	}
}

// TestAHomeOnTheWayIsNotTakenAway: root does not get a person's home.
func TestAHomeOnTheWayIsNotTakenAway(t *testing.T) {
	s := newScratch(t)
	home := filepath.Join(s.dir, "app/slots/home/slot01")
	s.must(os.MkdirAll(home, 0o755))
	s.chown(home, scratchSlot, scratchSlot)
	rows := s.audit().writers(home, rootAlone())
	if len(rows) != 1 || len(rows[0].Fix.Argv) > 0 {
		t.Errorf("%s", lines(rows))
	}
}

// TestSudosOwnFaultsHaveTheirOwnFix: what the rule says is no matter while sudo
// itself does not work.
func TestSudosOwnFaultsHaveTheirOwnFix(t *testing.T) {
	sudoers := func(s *scratch, name string) string { return filepath.Join(s.sys.Etc, name) }
	tests := []struct {
		name    string
		breakIt func(s *scratch)
		line    string
		fix     string // empty: sudo is as it should be
	}{
		{"healthy", func(*scratch) {}, "sudo: a password is required", ""},
		{"no setuid", func(s *scratch) { s.must(os.Chmod(s.sys.Sudo, 0o755)) }, "", "chmod 4755 SCRATCH/sudo"},
		{"closed", func(s *scratch) { s.must(os.Chmod(s.sys.Sudo, 0o700|os.ModeSetuid)) }, "", "chmod 4755 SCRATCH/sudo"},
		{"another owner", func(s *scratch) { s.chown(s.sys.Sudo, scratchService, 0) }, "", `sh -c chown root:root "$1" && chmod 4755 "$1" sudo SCRATCH/sudo`},
		{"none", func(s *scratch) { s.must(os.Remove(s.sys.Sudo)) }, "", "install sudo"},
		{"behind a link", func(s *scratch) {
			s.must(os.Rename(s.sys.Sudo, s.sys.Sudo+"-rs"))
			s.must(os.Symlink("sudo-rs", s.sys.Sudo))
			s.must(os.Chmod(s.sys.Sudo, 0o755))
		}, "", "chmod 4755 SCRATCH/sudo-rs"},
		{"sudoers open", func(s *scratch) { s.must(os.Chmod(sudoers(s, "sudoers"), 0o666)) }, "", "chmod go-w SCRATCH/etc/sudoers"},
		{"sudoers of another group", func(s *scratch) {
			s.chown(sudoers(s, "sudoers"), 0, scratchService)
			s.must(os.Chmod(sudoers(s, "sudoers"), 0o460))
		}, "", "chgrp root SCRATCH/etc/sudoers"},
		{"sudoers of another owner", func(s *scratch) { s.chown(sudoers(s, "sudoers"), scratchService, 0) }, "", "chown root SCRATCH/etc/sudoers"},
		{"no sudoers", func(s *scratch) { s.must(os.Remove(sudoers(s, "sudoers"))) }, "", "put back"},
		{"sudoers.d open", func(s *scratch) { s.must(os.Chmod(sudoers(s, "sudoers.d"), 0o777)) }, "", "chmod go-w SCRATCH/etc/sudoers.d"},
		{"sudo.conf open, of which sudo says nothing", func(s *scratch) { s.write(sudoers(s, "sudo.conf"), 0o666, "") }, "sudo: a password is required", ""},
		{"sudo.conf open", func(s *scratch) { s.write(sudoers(s, "sudo.conf"), 0o666, "") }, "sudo: SCRATCH/etc/sudo.conf is world writable", "chmod go-w SCRATCH/etc/sudo.conf"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScratch(t)
			tt.breakIt(s)
			line := strings.ReplaceAll(tt.line, "SCRATCH", s.dir)
			r, found := s.audit().sudoFault(line)
			if want := strings.ReplaceAll(tt.fix, "SCRATCH", s.dir); found != (want != "") || !strings.HasPrefix(fixText(r.Fix), want) {
				t.Errorf("%v: %+v %q, want %q", found, r, fixText(r.Fix), want)
			}
			if found && (r.Cause == "" || r.Detail == "" || r.Fix.Where != report.OnHost) {
				t.Errorf("%+v", r)
			}
		})
	}
}
