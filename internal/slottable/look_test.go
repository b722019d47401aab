package slottable

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// with is the scratch host with other accounts.
func (s *scratch) with(passwd, group func(string) string) System {
	sys := s.system()
	files := sys.Getent
	sys.Getent = func(ctx context.Context, database string, keys ...string) ([]byte, error) {
		out, err := files(ctx, database, keys...)
		change := passwd
		if database == "group" {
			change = group
		}
		if change == nil {
			return out, err
		}
		return []byte(change(string(out))), err
	}
	return sys
}

// The host said "not provisioned" of the holder, and provision sent back here.
func TestAHolderWithoutAnAccountIsReleased(t *testing.T) {
	for _, slot := range []string{"slot99", "slot00", "slot1000"} {
		s := newScratch(t)
		s.file(tablePath, `{"slots":{"slot01":"u1","`+slot+`":"u2"}}`, 0, serviceID, 0o640)
		s.dir(users+"u2", serviceID, 77777, 0o2770) // the group is gone too
		s.file(users+"u2/f", "x", serviceID, 77777, 0o660)
		s.file("/srv/vs/data/docs/roots", "x", 0, 0, 0o4755)
		st, rows, err := Show(context.Background(), s.system(), On(s.host))
		s.must(err)
		wantRow(t, rows, report.Fail, "slot-account", "held by u2, and no command can run as it: slots.count of the host file is 5")
		fails := 0
		for _, r := range rows {
			if r.Slot == slot && r.State == report.Fail {
				fails++
				if got := strings.Join(r.Fix.Argv, " "); got != "agentworks-deploy slots release box u2" {
					t.Errorf("%s: the fix is %q", slot, got)
				}
			}
		}
		if last := st.Slots[len(st.Slots)-1]; fails != 1 || last.Slot != slot || last.User != "u2" {
			t.Errorf("%s: %d failures, %+v", slot, fails, st.Slots)
		}
		_, _, err = s.assign("u2", "")
		refused(t, err, report.ExitState, "next: agentworks-deploy slots release box u2")
		before := s.scan()
		rows, err = s.release("u2", plan)
		s.must(err)
		wantRow(t, rows, report.Planned, "slot-table", slot+" is free")
		if diff := before.DiffTimes(s.scan()); len(diff) > 0 {
			t.Errorf("a plan changed %q", diff)
		}
		s.released("u2")
		s.is(users+"u2", serviceID, serviceID, 0o2770)
		s.is(users+"u2/f", serviceID, serviceID, 0o660)
		s.is("/srv/vs/data/docs/roots", 0, 0, 0o4755)
		if got := s.read(tablePath); strings.Contains(got, slot) || !strings.Contains(got, "slot01") {
			t.Error(got)
		}
	}
}

func TestSlotsAboveTheCountAreToldAndNotGiven(t *testing.T) {
	s := newScratch(t)
	s.file("/srv/vs/slots/home/slot04/left", "x", slotID(4), slotID(4), 0o600)
	s.dir(users+"u9", serviceID, slotID(5), 0o2770)
	s.host.Slots.Count = 3
	st, rows, err := Show(context.Background(), s.system(), On(s.host))
	s.must(err)
	wantRow(t, rows, report.Info, "slot-account", "above slots.count 3: slot04, slot05;")
	wantRow(t, rows, report.Info, "slot", "above slots.count, not clean: 1 entry in home")
	wantRow(t, rows, report.Fail, "user-tree", "u9 is open to slot05")
	wantRow(t, rows, report.Info, "slots-free", "3 of 3")
	if len(st.Slots) != 4 || st.Slots[3].Slot != "slot04" {
		t.Errorf("%+v", st.Slots)
	}
}

func TestWhatSlotsShouldNotHaveIsShown(t *testing.T) {
	s := newScratch(t)
	s.mode(s.root+"/srv/vs/slots/home/slot01", slotID(1), slotID(1), 0o777)
	s.mode(s.root+"/srv/vs/slots/state/slot02", serviceID, 0, 0o2777)
	s.must(os.Remove(s.root + "/srv/vs/slots/run/slot03"))
	list := safefs.ACLFromMode(0o770).WithGroup(strangeID, 7)
	s.must(unix.Setxattr(s.root+"/srv/vs/slots/run/slot04", string(safefs.DefaultACL), list.Encode(), 0))
	s.must(unix.Setxattr(s.root+tablePath, string(safefs.AccessACL), safefs.ACLFromMode(0o640).WithGroup(strangeID, 4).Encode(), 0))
	s.mode(s.root+"/etc/agentworks", 0, serviceID, 0o777)
	s.file("/etc/passwd", "slot05:x:71005:71005:::\n", 0, 0, 0o644)
	s.file("/etc/shadow", "slot05:$y$:::::::\n", 0, 0, 0o600)
	sys := s.with(
		func(passwd string) string {
			return strings.Replace(passwd, "/slot01:/usr/sbin/nologin", "/slot01:/bin/bash", 1) + "bob:x:1001:71002::/:/bin/sh\n"
		},
		func(group string) string { return group + "sudo:x:27:slot01,slot03,vs\n" })
	_, rows, err := Show(context.Background(), sys, On(s.host))
	s.must(err)
	for check, words := range map[string][]string{
		"slot-account":      {"slot01, slot03: in the group sudo", "the login shell is /bin/bash", "a password opens the account"},
		"slot-folders":      {"home: mode 0777, not 0700", "state: group root, mode 2777, not 2770", "run is missing", "run: an ACL"},
		"slot-table-acl":    {"slots.json has an ACL"},
		"slot-table-folder": {"mode 0777, so others"},
	} {
		for _, w := range words {
			wantRow(t, rows, report.Fail, check, w)
		}
	}
	wantRow(t, rows, report.Warn, "slot-account", "bob is in the group slot02")
	for _, r := range rows {
		if r.State == report.Fail && r.Check != "slot-table-mode" && strings.Join(r.Fix.Argv, " ") != "agentworks-deploy provision box" {
			t.Errorf("%+v: %+v", r, r.Fix)
		}
	}
	_, _, err = s.assign("u1", "slot03")
	refused(t, err, report.ExitState, "there is no /srv/vs/slots/run/slot03; next: agentworks-deploy provision box")
}

func TestEnabledAccountsWithoutASlotAreNamed(t *testing.T) {
	s := newScratch(t)
	file := "/srv/vs/data/docs/config/users.json"
	s.dir("/srv/vs/data/docs/config", serviceID, serviceID, 0o700)
	s.file(file, `{"users":[{"id":"u1"},{"id":"u2"},{"id":"u3","disabled":true},{"id":"u4"}]}`, serviceID, serviceID, 0o600)
	s.assigned("u1", "")
	st, rows, err := Show(context.Background(), s.system(), On(s.host))
	s.must(err)
	wantRow(t, rows, report.Info, "accounts-without-slot", "2 accounts are enabled and without a slot: u2, u4;")
	if strings.Join(st.WithoutSlot, " ") != "u2 u4" {
		t.Errorf("%q", st.WithoutSlot)
	}
	_, rows, err = s.assign("u3x", "")
	s.must(err)
	wantRow(t, rows, report.Warn, "user-account", "u3x is no enabled account of "+file)
	_, rows, err = s.assign("u2", "")
	s.must(err)
	noRow(t, rows, report.Warn, "user-account")

	off := On(s.host)
	off.Off = true
	_, rows, err = Show(context.Background(), s.system(), off)
	s.must(err)
	noRow(t, rows, report.Info, "accounts-without-slot")
	s.must(errors.Join(os.Remove(s.root+file), unix.Mkfifo(s.root+file, 0o600)))
	_, rows, err = Show(context.Background(), s.system(), On(s.host))
	s.must(err)
	wantRow(t, rows, report.Warn, "accounts-without-slot", "not a regular file")
}

func TestSomethingInTheLocksPlaceNamesProvision(t *testing.T) {
	for _, make := range []func(string) error{
		func(p string) error { return os.Mkdir(p, 0o700) },
		func(p string) error { return unix.Mkfifo(p, 0o600) },
		func(p string) error { return os.Symlink("/etc/passwd", p) },
	} {
		s := newScratch(t)
		s.must(make(s.root + "/etc/agentworks/slots.json.lock"))
		_, _, err := s.assign("u1", "")
		refused(t, err, report.ExitState, "next: agentworks-deploy provision box")
	}
	s := newScratch(t)
	s.must(errors.Join(os.Rename(s.root+"/srv/vs/slots/home", s.root+"/srv/vs/slots/home2"), os.Symlink("home2", s.root+"/srv/vs/slots/home")))
	s.must(os.Lchown(s.root+"/srv/vs/slots/home", serviceID, serviceID))
	_, _, err := Show(context.Background(), s.system(), On(s.host))
	refused(t, err, report.ExitState, "next: agentworks-deploy provision box")
}

// The row said that the user holds the slot, and the table was never written.
func TestATableThatCannotBeWrittenIsSaidWithTheWayOut(t *testing.T) {
	for _, frozen := range []string{tablePath, "/etc/agentworks"} {
		s := newScratch(t)
		s.file("/etc/agentworks/slots.json.lock", "", 0, 0, 0o600)
		s.must(freezeIt(s, s.root+frozen))
		_, rows, err := s.assign("u1", "")
		refused(t, err, report.ExitState, "the slot table was not written")
		refused(t, err, report.ExitState, "chattr -i -a "+frozen+", and the same again")
		noRow(t, rows, report.Changed, "slot-table")
	}
}
