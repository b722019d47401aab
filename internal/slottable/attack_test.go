package slottable

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/lab/labtest"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

func (s *scratch) link(from, to string) {
	s.Helper()
	s.must(os.Link(s.root+from, s.root+to))
}

func noRow(t *testing.T, rows []report.Row, state report.State, check string) {
	t.Helper()
	if has(rows, state, check, "") {
		t.Errorf("an unexpected row %s %s in %v", state, check, rows)
	}
}

// The service had linked its own .env into a user's tree, and the assign opened
// it to the slot.
func TestALinkOfEnvInATreeStaysTheServices(t *testing.T) {
	s := newScratch(t)
	s.dir(users+"u1", serviceID, serviceID, 0o2770)
	s.file("/srv/vs/.env", "x", serviceID, serviceID, 0o600)
	s.file("/srv/root", "x", 0, 0, 0o600)
	s.file("/srv/vs/slots/home/slot02/private", "x", slotID(2), slotID(2), 0o600)
	s.file("/srv/vs/slots/home/slot01/own", "x", slotID(1), slotID(1), 0o600)
	s.link("/srv/vs/.env", users+"u1/envlink")
	s.link("/srv/root", users+"u1/root")
	s.link("/srv/vs/slots/home/slot02/private", users+"u1/private")
	s.link("/srv/vs/slots/home/slot01/own", users+"u1/own")
	labtest.Settle()
	_, rows, err := s.assign("u1", "slot01", adopt)
	s.must(err)
	wantRow(t, rows, report.Warn, "user-tree", "4 hard-linked files")
	wantRow(t, rows, report.Warn, "user-tree", "find "+users+"u1 -xdev -type f -links +1")
	s.is("/srv/vs/.env", serviceID, serviceID, 0o600)
	s.is("/srv/root", 0, 0, 0o600)
	s.is("/srv/vs/slots/home/slot02/private", slotID(2), slotID(2), 0o600)
	s.is("/srv/vs/slots/home/slot01/own", slotID(1), slotID(1), 0o600)
	s.released("u1")
	s.is("/srv/vs/.env", serviceID, serviceID, 0o600)
}

// A clone of a repository links its objects, with all names in one tree.
func TestLinksWithAllNamesInTheTreeFollowIt(t *testing.T) {
	s := newScratch(t)
	s.dir(users+"u1", serviceID, serviceID, 0o2770)
	s.dir(users+"u1/a", serviceID, serviceID, 0o2770)
	s.dir(users+"u1/b", serviceID, serviceID, 0o2770)
	s.file(users+"u1/a/object", "x", serviceID, serviceID, 0o444)
	s.link(users+"u1/a/object", users+"u1/b/object")
	labtest.Settle()
	_, rows, err := s.assign("u1", "")
	s.must(err)
	noRow(t, rows, report.Warn, "user-tree")
	s.is(users+"u1/b/object", serviceID, slotID(1), 0o464&^7)
	labtest.Settle()
	s.released("u1")
	s.is(users+"u1/a/object", serviceID, serviceID, 0o464&^7)
}

func TestAProgramOfASlotIsNotSetuidAfterItsRelease(t *testing.T) {
	s := newScratch(t)
	s.dir("/srv/vs/data/docs/Downloads", serviceID, sharedID, 0o2770)
	s.assigned("u1", "slot01")
	s.file("/srv/vs/data/docs/Downloads/catsu", "x", slotID(1), slotID(1), 0o6755)
	s.file("/srv/vs/data/docs/Downloads/other", "x", slotID(2), slotID(2), 0o6755)
	s.file("/srv/vs/data/docs/Downloads/mine", "x", slotID(1), sharedID, 0o600)
	s.file("/srv/vs/slots/home/slot01/catsu", "x", slotID(1), slotID(1), 0o6755)
	s.link("/srv/vs/slots/home/slot01/catsu", users+"u1/catsu")
	labtest.Settle()
	before := s.scan()
	rows, err := s.release("u1", plan)
	s.must(err)
	wantRow(t, rows, report.Planned, "shared-files", "taken from 1 file of slot01")
	if diff := before.DiffTimes(s.scan()); len(diff) > 0 {
		t.Errorf("a plan changed %q", diff)
	}
	rows, err = s.release("u1")
	s.must(err)
	wantRow(t, rows, report.Changed, "shared-files", "taken from 1 file of slot01")
	wantRow(t, rows, report.Warn, "shared-files", "2 files in the shared folders")
	s.is("/srv/vs/data/docs/Downloads/catsu", slotID(1), slotID(1), 0o755)
	s.is("/srv/vs/data/docs/Downloads/other", slotID(2), slotID(2), 0o6755)
	s.is("/srv/vs/data/docs/Downloads/mine", slotID(1), sharedID, 0o600)
	s.is(users+"u1/catsu", slotID(1), slotID(1), 0o755)
	s.must(os.Remove(s.root + "/srv/vs/slots/home/slot01/catsu"))

	// What an older release left is disarmed before the slot is given.
	s.file("/srv/vs/data/docs/Downloads/catsu", "x", slotID(1), slotID(1), 0o6755)
	s.assigned("u2", "slot01")
	s.is("/srv/vs/data/docs/Downloads/catsu", slotID(1), slotID(1), 0o755)
}

// An administrator made the account anew, for somebody.
func TestASlotWithSomebodysAccountIsGivenToNobody(t *testing.T) {
	s := newScratch(t)
	foreign := s.system()
	files := foreign.Getent
	foreign.Getent = func(ctx context.Context, database string, keys ...string) ([]byte, error) {
		out, err := files(ctx, database, keys...)
		return []byte(strings.Replace(string(out), "slot01:x:71001:71001::/srv/vs/slots/home/slot01:", "slot01:x:12345:71001::/home/eve:", 1)), err
	}
	before := s.scan()
	_, _, err := Assign(context.Background(), foreign, s.request("z", "slot01"))
	refused(t, err, report.ExitState, "has the home /home/eve")
	refused(t, err, report.ExitState, "userdel slot01; then agentworks-deploy provision box")
	if diff := before.Diff(s.scan()); len(diff) > 0 {
		t.Errorf("the refusal changed %q", diff)
	}
	_, rows, err := Show(context.Background(), foreign, On(s.host))
	s.must(err)
	wantRow(t, rows, report.Fail, "slot-account", "has the home /home/eve")
	wantRow(t, rows, report.Info, "slots-free", "4 of 5")
	slot, rows, err := Assign(context.Background(), foreign, s.request("z", ""))
	s.must(err)
	if slot != "slot02" {
		t.Errorf("z got %s", slot)
	}
	wantRow(t, rows, report.Info, "slot-residue", "slot01 (no account of its own)")

	// Whoever holds it is not served any more either.
	s.released("z")
	s.assigned("u1", "slot01")
	_, _, err = Assign(context.Background(), foreign, s.request("u1", ""))
	refused(t, err, report.ExitState, "has the home /home/eve")
}

// An administrator had /etc mounted where a user's tree belongs.
func TestAMountInThePlaceOfATreeIsGivenToNobody(t *testing.T) {
	s := newScratch(t)
	s.dir("/out", 0, 0, 0o755)
	s.file("/out/shadow", "x", 0, 0, 0o640)
	s.dir(users+"e8", serviceID, serviceID, 0o2770)
	s.dir(users+"u1", serviceID, serviceID, 0o2770)
	s.assigned("u1", "slot02")
	before := s.scan()
	var assign, release error
	labtest.WithMounts(t, map[string]string{s.root + users + "e8": s.root + "/out", s.root + users + "u1": s.root + "/out"}, func() {
		_, _, assign = s.assign("e8", "")
		_, release = s.release("u1")
	})
	refused(t, assign, report.ExitState, "next, on the host: umount "+users+"e8")
	refused(t, release, report.ExitState, "next, on the host: umount "+users+"u1")
	if diff := before.DiffTimes(s.scan()); len(diff) > 0 {
		t.Errorf("changed %q", diff)
	}
}

// The assign failed and left the slot held.
func TestWhatForbidsAnAssignIsKnownBeforeTheSlotIsHeld(t *testing.T) {
	for name, c := range map[string]struct {
		make func(s *scratch, tree string) error
		want string
	}{
		"link": {func(s *scratch, tree string) error { return os.Symlink("/etc", tree) }, "next, on the host: look at it, then rm " + users + "u1"},
		"file": {func(s *scratch, tree string) error { return os.WriteFile(tree, nil, 0o600) }, "is no folder"},
		"FIFO": {func(s *scratch, tree string) error { return unix.Mkfifo(tree, 0o600) }, "is no folder"},
		"stray": {func(s *scratch, tree string) error {
			return errors.Join(os.Mkdir(tree, 0o700), os.Mkdir(tree+"2", 0o700), os.Chown(tree+"2", serviceID, slotID(1)), freeze(s, tree+"2/file"))
		}, "chattr -i"},
		"immutable": {func(s *scratch, tree string) error {
			return errors.Join(os.Mkdir(tree, 0o700), freeze(s, tree+"/file"))
		}, "chattr -i -a "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScratch(t)
			s.must(c.make(s, s.root+users+"u1"))
			before := s.scan()
			_, _, err := s.assign("u1", "")
			refused(t, err, report.ExitState, c.want)
			if diff := before.Diff(s.scan()); len(diff) > 0 {
				t.Errorf("the refusal changed %q", diff)
			}
			_, _, err = s.assign("u1", "", plan)
			refused(t, err, report.ExitState, c.want)
		})
	}
	t.Run("release", func(t *testing.T) {
		s := newScratch(t)
		s.assigned("u1", "")
		s.must(freeze(s, s.root+users+"u1/file"))
		before := s.scan()
		_, err := s.release("u1")
		refused(t, err, report.ExitState, "chattr -i -a "+s.root+users+"u1/file")
		if diff := before.Diff(s.scan()); len(diff) > 0 {
			t.Errorf("the refusal changed %q", diff)
		}
	})
}

// freeze makes an immutable file, until the test ends.
func freeze(s *scratch, path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	return freezeIt(s, path)
}

// freezeIt makes a file or folder that is there immutable, until the test ends.
func freezeIt(s *scratch, path string) error {
	const immutable = 0x10 // FS_IMMUTABLE_FL
	flag := func(value int) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, value)
	}
	s.Cleanup(func() { _ = flag(0) })
	return flag(immutable)
}

// Every choice stopped at one dirty slot though others were free.
func TestUncleanSlotsArePassedOver(t *testing.T) {
	s := newScratch(t)
	s.assigned("u1", "slot01")
	s.file("/srv/vs/slots/home/slot01/x", "x", slotID(1), slotID(1), 0o600)
	s.file("/srv/vs/slots/run/slot02/x", "x", slotID(2), slotID(2), 0o600)
	s.released("u1")
	slot, rows, err := s.assign("u2", "")
	s.must(err)
	if slot != "slot03" {
		t.Errorf("u2 got %s", slot)
	}
	wantRow(t, rows, report.Info, "slot-residue", "passed over: slot01 (1 entry in home), slot02 (1 entry in run)")
	if got := s.assigned("u1", ""); got != "slot01" { // who left it, gets it
		t.Errorf("u1 got %s", got)
	}
	s.assigned("u3", "")
	s.assigned("u4", "")
	_, _, err = s.assign("u5", "")
	refused(t, err, report.ExitState, "slot02 is free but not clean")
	s.released("u1")
	_, _, err = s.assign("u5", "")
	refused(t, err, report.ExitState, "no free slot is clean: slot01 (1 entry in home), slot02 (1 entry in run)")
	if got := s.assigned("u5", "", adopt); got != "slot01" {
		t.Errorf("u5 got %s", got)
	}
}

// A lower slots.count hid who held the slots above it.
func TestHoldersAboveTheCountAreShownAndReleased(t *testing.T) {
	s := newScratch(t)
	s.assigned("u5", "slot05")
	s.host.Slots.Count = 3
	st, rows, err := Show(context.Background(), s.system(), On(s.host))
	s.must(err)
	wantRow(t, rows, report.Fail, "slot-account", "held by u5, and no command can run as it: slots.count of the host file is 3")
	if len(st.Slots) != 4 || st.Slots[3].User != "u5" {
		t.Errorf("%+v", st.Slots)
	}
	_, _, err = s.assign("u5", "")
	refused(t, err, report.ExitState, "raise slots.count")
	s.released("u5")
	s.is(users+"u5", serviceID, serviceID, 0o2770)
}

// A slot let another one in by ACLs, which outlived the release.
func TestACLsOfSlotsGoWithThem(t *testing.T) {
	s := newScratch(t)
	s.dir(users+"u1/deep", serviceID, serviceID, 0o2770)
	s.file(users+"u1/deep/file", "x", serviceID, serviceID, 0o640)
	s.assigned("u1", "slot01")
	set := func(path string, kind safefs.ACLKind, list safefs.ACL) {
		t.Helper()
		s.must(unix.Setxattr(s.root+path, string(kind), list.Encode(), 0))
	}
	foreign := safefs.ACL{{Tag: safefs.ACLOwner, Perm: 7}, {Tag: safefs.ACLUser, Perm: 7, ID: uint32(slotID(2))}, {Tag: safefs.ACLGroup, Perm: 7}, {Tag: safefs.ACLMask, Perm: 7}, {Tag: safefs.ACLOther}}
	own := safefs.ACLFromMode(0o770).WithGroup(serviceID, 7)
	set(users+"u1/deep", safefs.AccessACL, foreign)
	set(users+"u1/deep", safefs.DefaultACL, foreign)
	set(users+"u1/deep/file", safefs.AccessACL, foreign)
	s.dir(users+"u1/platform", serviceID, slotID(1), 0o2770)
	set(users+"u1/platform", safefs.DefaultACL, own)
	named := func() (found []string) {
		s.must(filepath.WalkDir(s.root+users+"u1", func(p string, _ os.DirEntry, err error) error {
			for _, kind := range []safefs.ACLKind{safefs.AccessACL, safefs.DefaultACL} {
				buf := make([]byte, 1<<10)
				n, get := unix.Lgetxattr(p, string(kind), buf)
				if get != nil {
					continue
				}
				list, bad := safefs.ParseACL(buf[:n])
				s.must(bad)
				for _, e := range list {
					if e.Tag == safefs.ACLUser || e.Tag == safefs.ACLNamed {
						found = append(found, filepath.Base(p)+" "+string(kind))
					}
				}
			}
			return err
		}))
		return found
	}
	if len(named()) != 4 {
		t.Fatal(named())
	}
	before := s.scan()
	_, rows, err := s.assign("u1", "", plan)
	s.must(err)
	wantRow(t, rows, report.Planned, "user-tree", "2 differences")
	if diff := before.DiffTimes(s.scan()); len(diff) > 0 {
		t.Errorf("a plan changed %q", diff)
	}
	s.assigned("u1", "")
	if got := named(); len(got) != 1 || got[0] != "platform "+string(safefs.DefaultACL) {
		t.Error(got)
	}
	s.is(users+"u1/deep", serviceID, slotID(1), 0o2770)
	set(users+"u1/deep/file", safefs.AccessACL, foreign)
	s.released("u1")
	if got := named(); len(got) != 1 {
		t.Error(got)
	}
}

func TestEveryRefusalSaysTheNextStep(t *testing.T) {
	s := newScratch(t)
	s.assigned("u1", "slot01")
	_, _, err := s.assign("u2", "slot01")
	refused(t, err, report.ExitState, "slot01 is held by u1; next: name another slot or none, or agentworks-deploy slots release box u1")
	s.file("/etc/agentworks/slots.history.json", `{"slots":{}}`, 0, 0, 0o600)
	_, err = s.release("u3")
	refused(t, err, report.ExitState, "u3 holds no slot; next: agentworks-deploy slots status box")
	_, err = s.release("slot01")
	refused(t, err, report.ExitState, "next: agentworks-deploy slots release box u1")
	for _, user := range []string{"u2", "u3", "u4", "u5"} {
		s.assigned(user, "")
	}
	_, _, err = s.assign("u6", "")
	refused(t, err, report.ExitState, "no free slot: all 5 are held; next: agentworks-deploy slots release box <user>")

	s.file(tablePath, "{", 0, serviceID, 0o640)
	_, _, err = s.assign("u6", "")
	refused(t, err, report.ExitState, "next: agentworks-deploy slots rebuild box")
	s.must(os.Remove(s.root + tablePath))
	s.must(unix.Mkfifo(s.root+tablePath, 0o640))
	done := time.AfterFunc(20*time.Second, func() { panic("a FIFO was opened") })
	defer done.Stop()
	_, _, err = Show(context.Background(), s.system(), On(s.host))
	refused(t, err, report.ExitState, "a FIFO, not a regular file; next, on the host: look at it, then rm "+s.root+tablePath)
	s.file("/etc/agentworks/link", "", 0, 0, 0o600)
	s.must(errors.Join(os.Remove(s.root+tablePath), os.Remove(s.root+"/etc/agentworks/slots.history.json"), os.Symlink("link", s.root+"/etc/agentworks/slots.history.json")))
	s.file(tablePath, `{"slots":{}}`, 0, serviceID, 0o640)
	_, _, err = s.assign("u6", "")
	refused(t, err, report.ExitState, "rm "+s.root+"/etc/agentworks/slots.history.json")
	s.must(errors.Join(os.Remove(s.root+tablePath), unix.Mkfifo(s.root+tablePath, 0o640)))
	_, err = Rebuild(context.Background(), s.system(), On(s.host))
	refused(t, err, report.ExitState, "rm "+tablePath)
}

func TestAHostWithoutTheSharedGroupIsNotProvisioned(t *testing.T) {
	s := newScratch(t)
	sys := s.system()
	files := sys.Getent
	sys.Getent = func(ctx context.Context, database string, keys ...string) ([]byte, error) {
		out, err := files(ctx, database, keys...)
		return []byte(strings.Replace(string(out), "slotshared", "renamed", 1)), err
	}
	_, _, err := Assign(context.Background(), sys, s.request("u1", ""))
	refused(t, err, report.ExitState, "there is no group slotshared; next: agentworks-deploy provision box")
	_, rows, err := Show(context.Background(), sys, On(s.host))
	s.must(err)
	wantRow(t, rows, report.Fail, "slot-account", "there is no group slotshared")
}
