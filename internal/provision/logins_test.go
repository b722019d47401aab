package provision

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

func informed(t *testing.T, rows []report.Row, check, words string) {
	t.Helper()
	for _, r := range rows {
		if r.State == report.Info && r.Check == check && strings.Contains(r.Detail, words) {
			return
		}
	}
	t.Errorf("no INFO %s with %q in %v", check, words, rows)
}

func changed(rows []report.Row) (details []string) {
	for _, r := range rows {
		if r.State == report.Changed {
			details = append(details, r.Detail)
		}
	}
	return details
}

func TestALowerCountLeavesEverythingOfASlotAndSaysSo(t *testing.T) {
	s := newScratch(t)
	s.host.Slots.Count = 5
	s.provision()
	s.file("/srv/svc/slots/home/slot05/kept", "x")
	accounts := s.read("/etc/passwd") + s.read("/etc/group")
	s.host.Slots.Count = 3
	rows := s.provision()
	informed(t, rows, "accounts", "above slots.count 3: slot04, slot05; accounts, groups and folders stay")
	informed(t, rows, "accounts", "userdel slot04; groupdel slot04")
	if got := changed(rows); len(got) != 1 || !strings.Contains(got[0], "agentworks-slots") {
		t.Errorf("changed %q", got)
	}
	before := s.snapshot()
	if got := changed(s.provision()); len(got) > 0 {
		t.Errorf("the second run changed %q", got)
	}
	s.equal(before)
	if s.read("/etc/passwd")+s.read("/etc/group") != accounts || s.read("/srv/svc/slots/home/slot05/kept") != "x" {
		t.Error("something of a slot above the count is gone")
	}
	s.host.Slots.Count = 5
	if got := changed(s.provision()); len(got) != 1 {
		t.Errorf("the way back changed %q", got)
	}
}

// tools stand in for those of a host; shadow's own are used in the lab.
func (s *scratch) tools() {
	s.program("gpasswd", fmt.Sprintf(`sed -i "/^$3:/{s/\([:,]\)$2\(,\|\$\)/\1\2/;s/:,/:/;s/,,/,/;s/,\$//}" %s/etc/group`, s.root))
	s.program("usermod", fmt.Sprintf(`case $1 in
-L) sed -i "s/^$2:/$2:!/" %[1]s/etc/shadow;;
-s) sed -i "/^$3:/s#:[^:]*\$#:$2#" %[1]s/etc/passwd;;
esac`, s.root))
}

func TestASlotIsInItsOwnGroupAndTheSharedOne(t *testing.T) {
	s := newScratch(t)
	s.host.Slots.Count = 5
	s.provision()
	s.tools()
	s.append("/etc/group", "sudo:x:27:slot01,svc,slot05\ndocker:x:28:slot01\n")
	s.file("/etc/shadow", strings.NewReplacer("slot02:!*:", "slot02:$y$abc:", "slot03:!*:", "slot03::").Replace(s.read("/etc/shadow")))
	s.host.Slots.Count = 4 // slot05 is an account all the same
	rows, err := s.run(true)
	if err != nil || strings.Contains(fmt.Sprint(changed(rows)), "group") {
		t.Fatal(rows, err)
	}
	got := strings.Join(changed(s.provision()), "\n")
	for _, want := range []string{"take <slot> out of the group sudo (slot01, slot05)", "take slot01 out of the group docker", "lock the password of <slot> (2 slots)"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if got := s.read("/etc/group"); !strings.Contains(got, "sudo:x:27:svc\ndocker:x:28:\n") {
		t.Error(got)
	}
	if got := s.read("/etc/shadow"); !strings.Contains(got, "slot02:!$y$abc:") || !strings.Contains(got, "slot03:!:") || !strings.Contains(got, "slot01:!*:") {
		t.Error(got)
	}
	before := s.snapshot()
	s.provision()
	s.equal(before)
}

func TestAGroupOfAnotherSourceIsRefused(t *testing.T) {
	s := newScratch(t)
	s.provision()
	sys := s.system()
	files := sys.Getent
	sys.Getent = func(ctx context.Context, database string, keys ...string) ([]byte, error) {
		out, err := files(ctx, database, keys...)
		if database == "group" && len(keys) == 0 {
			out = append(out, "ldapadmins:*:900000:slot02\n"...)
		}
		return out, err
	}
	_, err := Run(t.Context(), sys, s.request(false))
	if report.CodeOf(err) != report.ExitState || !strings.Contains(err.Error(), "slot02 is a member of the group ldapadmins, which is not in /etc/group") {
		t.Error(err)
	}
}

func TestGuestsOfASlotsGroupAreTold(t *testing.T) {
	s := newScratch(t)
	s.provision()
	s.append("/etc/passwd", "bob:x:1001:70002::/home/bob:/bin/sh\n")
	s.file("/etc/group", strings.Replace(s.read("/etc/group"), "slot01:x:70001:svc", "slot01:x:70001:svc,eve", 1))
	rows := s.provision()
	warned(t, rows, "accounts", "eve is in the group slot01")
	warned(t, rows, "accounts", "bob is in the group slot02")
	for _, r := range rows {
		if r.State == report.Warn && r.Slot == "slot01" && strings.Join(r.Fix.Argv, " ") != "gpasswd -d eve slot01" {
			t.Errorf("%+v", r.Fix)
		}
	}
}

func (s *scratch) letIn(p string, kind safefs.ACLKind, uid uint32) {
	s.t.Helper()
	list := safefs.ACL{{Tag: safefs.ACLOwner, Perm: 7}, {Tag: safefs.ACLUser, Perm: 7, ID: uid}, {Tag: safefs.ACLGroup, Perm: 5}, {Tag: safefs.ACLMask, Perm: 7}, {Tag: safefs.ACLOther}}
	if err := unix.Setxattr(s.at(p), string(kind), list.Encode(), 0); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scratch) listed(p string) bool {
	s.t.Helper()
	for _, kind := range []safefs.ACLKind{safefs.AccessACL, safefs.DefaultACL} {
		if n, err := unix.Getxattr(s.at(p), string(kind), nil); err == nil && n > 0 {
			return true
		}
	}
	return false
}

func TestNobodyIsLetInByAnACLOrAnOpenMode(t *testing.T) {
	s := newScratch(t)
	s.provision()
	s.file("/etc/agentworks/slots.history.json", "{}\n")
	paths := map[string]uint32{
		"/srv/svc/slots/home/slot01": 0o700, "/srv/svc/slots/state/slot01": 0o2770, "/srv/svc/slots/run/slot02": 0o2770,
		"/srv/svc/state": 0o700, "/srv/svc/releases": 0o711, "/srv/svc/data/docs/_users": 0o711, "/etc/agentworks": 0o751,
		"/etc/agentworks/slots.json": 0o640, "/etc/agentworks/slots.json.lock": 0o600, "/etc/agentworks/slots.history.json": 0o600,
		"/usr/local/libexec/agentworks": 0o755, "/usr/local/libexec/agentworks/slotctl.json": 0o644, "/etc/sudoers.d/agentworks-slots": 0o440,
	}
	for p := range paths {
		s.chmod(p, 0o777)
		s.letIn(p, safefs.AccessACL, 70002)
	}
	s.letIn("/srv/svc/slots/run/slot03", safefs.DefaultACL, 70002)
	s.letIn("/srv/svc/logs", safefs.AccessACL, 70002)
	s.chmod("/srv/svc/logs", 0o750)
	s.provision()
	for p, mode := range paths {
		if st := s.stat(p); st.Mode&0o7777 != mode || s.listed(p) {
			t.Errorf("%s is %04o, with an ACL: %v", p, st.Mode&0o7777, s.listed(p))
		}
	}
	if s.listed("/srv/svc/slots/run/slot03") || !s.listed("/srv/svc/logs") {
		t.Error("the default ACL stays, or the log collector is out")
	}
	before := s.snapshot()
	s.provision()
	s.equal(before)

	// A parent's default ACL is not inherited for good.
	s.letIn("/srv/svc", safefs.DefaultACL, 70002)
	if err := unix.Rmdir(s.at("/srv/svc/state")); err != nil {
		t.Fatal(err)
	}
	s.provision()
	if s.listed("/srv/svc/state") {
		t.Error("a new folder keeps the ACL that it inherited")
	}
}

func (s *scratch) stat(p string) (st unix.Stat_t) {
	s.t.Helper()
	if err := unix.Lstat(s.at(p), &st); err != nil {
		s.t.Fatal(err)
	}
	return st
}

func TestFoldersAboveThatEverybodyMayWriteAreTold(t *testing.T) {
	s := newScratch(t)
	for _, p := range []string{"/srv/svc", "/srv/svc/data", "/etc/sudoers.d", "/usr/local"} {
		s.chmod(p, 0o777)
	}
	s.chmod("/srv", 0o1777)
	rows := s.provision()
	for _, p := range []string{"/srv/svc", "/srv/svc/data"} {
		warned(t, rows, "ancestors", "everybody may write to "+p+" (mode 0777)")
	}
	for _, p := range []string{"/etc/sudoers.d", "/usr/local"} {
		warned(t, rows, "programs", "everybody may write to "+p+" (mode 0777)")
	}
	s.is("/srv/svc", serviceID, serviceID, 0o777)
	for _, r := range rows {
		if r.State == report.Warn && strings.Contains(r.Detail, "to /srv (") {
			t.Error(r)
		}
	}
}

func TestATableThatNobodyCanReadIsTold(t *testing.T) {
	s := newScratch(t)
	s.host.Name = "box"
	s.provision()
	s.file("/etc/agentworks/slots.json", `{"slots":{"slot01":"u1","slot02":"u1"}}`)
	rows := s.provision()
	warned(t, rows, "slot-table", "one user holds both slot01 and slot02")
	if s.read("/etc/agentworks/slots.json") != `{"slots":{"slot01":"u1","slot02":"u1"}}` {
		t.Error("the table was rewritten")
	}
}

// An empty table would make it look as if nobody had held anything.
func TestATableThatIsGoneIsNotBegunAnewWhereTreesSayWhoHeldWhat(t *testing.T) {
	s := newScratch(t)
	s.host.Name = "box"
	s.provision()
	s.owned("/srv/svc/data/docs/_users/u1", 0o770)
	s.chown("/srv/svc/data/docs/_users/u1", serviceID, 70001)
	for _, gone := range []string{"/etc/agentworks/slots.json", "/etc/agentworks/slots.json.lock"} {
		if err := unix.Unlink(s.at(gone)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		_, err := s.run(false)
		if report.CodeOf(err) != report.ExitState || !strings.Contains(err.Error(), "next: agentworks-deploy slots rebuild box") {
			t.Fatal(err)
		}
	}
	if err := unix.Access(s.at("/etc/agentworks/slots.json"), unix.F_OK); err != unix.ENOENT {
		t.Error("there is a table")
	}
	s.is("/etc/agentworks/slots.json.lock", 0, 0, 0o600)
}

func TestHoldersThatNoCountHasAreToldTheOneWayOut(t *testing.T) {
	s := newScratch(t)
	s.host.Name = "box"
	s.provision()
	s.file("/etc/agentworks/slots.json", `{"slots":{"slot00":"u0","slot01":"u1"}}`)
	_, err := s.run(true)
	if err == nil || !strings.Contains(err.Error(), "who holds slot00; nothing was changed; next: agentworks-deploy slots release box <user> for each") || strings.Contains(err.Error(), "raise") {
		t.Error(err)
	}
}

func TestSudoThatDoesNotAnswerIsSaidWithItsWords(t *testing.T) {
	s := newScratch(t)
	if err := os.Chmod(filepath.Dir(s.root), 0o711); err != nil {
		t.Fatal(err)
	}
	s.provision()
	s.program("sudo", "exit 125") // slotctl, of an empty request
	s.provision()
	s.program("sudo", `echo "sudo: a password is required" >&2; exit 1`)
	s.chmod("/usr/sbin/sudo", 0o4755)
	_, err := s.run(false)
	if report.CodeOf(err) != report.ExitState || !strings.Contains(err.Error(), "a password is required; next, on the host: sudo -l -U svc shows") {
		t.Error(err)
	}
	if _, err := s.run(true); err != nil {
		t.Errorf("a plan called sudo: %v", err)
	}
	s.chmod("/usr/sbin/sudo", 0o755)
	if _, err := s.run(false); err == nil || !strings.Contains(err.Error(), "chmod 4755 ") {
		t.Error(err)
	}
}

// TestB03ALockFileThatStaysIsNamed: an editor of the accounts died and left it.
func TestB03ALockFileThatStaysIsNamed(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	s.provision()
	s.file("/etc/passwd", strings.Replace(s.read("/etc/passwd"), "home/slot02:/usr/sbin/nologin", "home/slot02:/bin/sh", 1))
	s.program("usermod", `echo "usermod: existing lock file /etc/shadow.lock with an invalid PID 'x'"; echo "usermod: cannot lock /etc/shadow; try again later."; exit 1`)
	if _, err := s.run(false); report.CodeOf(err) != report.ExitLocked || !strings.HasSuffix(err.Error(), "where no program is at work on the accounts: rm /etc/shadow.lock") {
		t.Error(err)
	}
}
