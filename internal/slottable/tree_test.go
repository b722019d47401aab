package slottable

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/lab/labtest"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

const users = "/srv/vs/data/docs/_users/"

func TestT08TheTreeFollowsTheSlot(t *testing.T) {
	s := newScratch(t)
	s.dir(users+"u1", serviceID, serviceID, 0o755)
	s.dir(users+"u1/dir", serviceID, serviceID, 0o755)
	s.dir(users+"u1/dir/closed", serviceID, serviceID, 0o700)
	s.file(users+"u1/dir/file", "x", serviceID, serviceID, 0o644)
	s.file(users+"u1/dir/program", "x", serviceID, serviceID, 0o755)
	s.file(users+"u1/rootmade", "x", 0, 0, 0o600)
	s.assigned("u1", "")
	s.is(users+"u1", serviceID, slotID(1), 0o2770)
	s.is(users+"u1/dir", serviceID, slotID(1), 0o2770)
	s.is(users+"u1/dir/closed", serviceID, slotID(1), 0o2770)
	s.is(users+"u1/dir/file", serviceID, slotID(1), 0o660)
	s.is(users+"u1/dir/program", serviceID, slotID(1), 0o770)
	s.is(users+"u1/rootmade", serviceID, slotID(1), 0o660)

	// What the user made meanwhile.
	s.file(users+"u1/made", "x", slotID(1), slotID(1), 0o644)
	s.dir(users+"u1/mydir", slotID(1), slotID(1), 0o2755)
	s.released("u1")
	s.is(users+"u1", serviceID, serviceID, 0o2770)
	s.is(users+"u1/dir", serviceID, serviceID, 0o2770)
	s.is(users+"u1/dir/file", serviceID, serviceID, 0o660)
	s.is(users+"u1/made", serviceID, serviceID, 0o640)
	s.is(users+"u1/mydir", serviceID, serviceID, 0o2750)

	s.assigned("u9", "slot02")
	s.is(users+"u9", serviceID, slotID(2), 0o2770)
}

func TestOnlyDifferencesAreTouched(t *testing.T) {
	s := newScratch(t)
	s.dir(users+"u1/dir", serviceID, serviceID, 0o755)
	s.file(users+"u1/dir/file", "x", serviceID, serviceID, 0o644)
	s.assigned("u1", "")
	s.file(users+"u1/dir/new", "x", serviceID, slotID(1), 0o644)
	ctime := func(path string) unix.Timespec {
		var st unix.Stat_t
		s.must(unix.Stat(s.root+users+path, &st))
		return st.Ctim
	}
	top, dir, file := ctime("u1"), ctime("u1/dir"), ctime("u1/dir/file")
	_, rows, err := s.assign("u1", "")
	s.must(err)
	wantRow(t, rows, report.Changed, "user-tree", "1 difference")
	if top != ctime("u1") || dir != ctime("u1/dir") || file != ctime("u1/dir/file") {
		t.Error("more was touched")
	}
	_, rows, err = s.assign("u1", "")
	s.must(err)
	wantRow(t, rows, report.OK, "user-tree", "already given to slot01")
}

func TestB09TreesAreNeverLeftThroughLinks(t *testing.T) {
	s := newScratch(t)
	s.dir("/out/dir", 0, 0, 0o755)
	s.file("/out/secret", "x", 0, 0, 0o600)
	s.dir(users+"u1", serviceID, serviceID, 0o2770)
	for name, target := range map[string]string{"dir": "/out/dir", "file": "/out/secret", "up": "..", "users": "../../_users", "dangling": "nowhere"} {
		if filepath.IsAbs(target) {
			target = s.root + target
		}
		s.must(os.Symlink(target, s.root+users+"u1/"+name))
		s.must(os.Lchown(s.root+users+"u1/"+name, slotID(1), slotID(1)))
	}
	s.must(unix.Mkfifo(s.root+users+"u1/fifo", 0o644))
	s.assigned("u1", "")
	// A link that the service came to own would be trusted by the launcher.
	s.is(users+"u1/file", slotID(1), slotID(1), 0o777)
	s.is(users+"u1/fifo", serviceID, slotID(1), 0o660)
	s.released("u1")
	s.is(users+"u1/dir", slotID(1), slotID(1), 0o777)
	s.is("/out/dir", 0, 0, 0o755)
	s.is("/out/secret", 0, 0, 0o600)
	s.is("/srv/vs/data/docs/_users", serviceID, serviceID, 0o711)

	s.must(os.Symlink(s.root+"/out", s.root+users+"u2"))
	_, _, err := s.assign("u2", "slot02")
	refused(t, err, report.ExitState, "is no folder")
	s.file(users+"u3", "x", serviceID, serviceID, 0o600)
	_, _, err = s.assign("u3", "slot03")
	refused(t, err, report.ExitState, "is no folder")
	s.is("/out", 0, 0, 0o711)
}

func TestSetuidDoesNotBecomeTheServices(t *testing.T) {
	s := newScratch(t)
	s.dir(users+"u1", serviceID, serviceID, 0o2770)
	s.file(users+"u1/a", "x", slotID(1), slotID(1), 0o6755)
	s.file(users+"u1/b", "x", serviceID, slotID(1), 0o4750)
	s.assigned("u1", "")
	s.is(users+"u1/a", serviceID, slotID(1), 0o770)
	s.is(users+"u1/b", serviceID, slotID(1), 0o770)
}

func TestAnACLOfTheTreeGoes(t *testing.T) {
	s := newScratch(t)
	s.dir(users+"u1", serviceID, serviceID, 0o700)
	acl := safefs.ACLFromMode(0o700).WithGroup(slotID(2), 7)
	for _, kind := range []safefs.ACLKind{safefs.AccessACL, safefs.DefaultACL} {
		s.must(unix.Setxattr(s.root+users+"u1", string(kind), acl.Encode(), 0))
	}
	before := s.scan()
	_, rows, err := s.assign("u1", "", plan)
	s.must(err)
	wantRow(t, rows, report.Planned, "user-tree", "1 difference")
	if diff := before.DiffTimes(s.scan()); len(diff) > 0 {
		t.Errorf("a plan changed %q", diff)
	}
	s.assigned("u1", "")
	s.is(users+"u1", serviceID, slotID(1), 0o2770)
	for _, kind := range []safefs.ACLKind{safefs.AccessACL, safefs.DefaultACL} {
		if _, err := unix.Getxattr(s.root+users+"u1", string(kind), nil); err != unix.ENODATA {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestT12AnUncleanSlotIsItsLastHolders(t *testing.T) {
	for _, left := range []string{"home", "state", "run", "process"} {
		t.Run(left, func(t *testing.T) {
			s := newScratch(t)
			s.assigned("u1", "slot01")
			if left == "process" {
				s.process(4242, slotID(1))
			} else {
				s.file("/srv/vs/slots/"+left+"/slot01/.leftover", "x", slotID(1), slotID(1), 0o600)
			}
			rows, err := s.release("u1")
			s.must(err)
			wantRow(t, rows, report.Warn, "slot-residue", "only u1 gets this slot again")
			s.is("/etc/agentworks/slots.history.json", 0, 0, 0o600)

			before := s.scan()
			_, _, err = s.assign("u3", "slot01")
			refused(t, err, report.ExitState, "slot01 is free but not clean: 1 ")
			refused(t, err, report.ExitState, "u1 held it last")
			if diff := before.DiffTimes(s.scan()); len(diff) > 0 {
				t.Errorf("the refusal changed %q", diff)
			}
			if got := s.assigned("u1", ""); got != "slot01" {
				t.Errorf("u1 got %s", got)
			}
			s.released("u1")
			s.assigned("u3", "slot01", adopt)
			s.released("u3")
			_, _, err = s.assign("u1", "slot01")
			refused(t, err, report.ExitState, "u3 held it last")

			if left == "process" {
				s.must(os.RemoveAll(s.root + "/proc/4242"))
			} else {
				s.must(os.Remove(s.root + "/srv/vs/slots/" + left + "/slot01/.leftover"))
			}
			s.assigned("u1", "slot01")
		})
	}
	s := newScratch(t)
	s.file("/srv/vs/slots/home/slot01/x", "x", slotID(1), slotID(1), 0o600)
	_, _, err := s.assign("u1", "slot01")
	refused(t, err, report.ExitState, "nobody knows who held it")
}

// process is a process of uid in the scratch host's table.
func (s *scratch) process(pid, uid int) {
	s.Helper()
	dir := fmt.Sprintf("/proc/%d", pid)
	s.dir(dir, 0, 0, 0o755)
	s.file(dir+"/status", fmt.Sprintf("Name:\tx\nUid:\t%d\t%d\t%d\t%d\nGid:\t%d\t%d\t%d\t%d\nGroups:\t%d \n", uid, uid, uid, uid, uid, uid, uid, uid, uid), 0, 0, 0o644)
	s.file(dir+"/cgroup", "0::/x\n", 0, 0, 0o644)
}

// Programs that only freed the slot left the tree open to it.
func TestAStrangersTreeIsClosedBeforeTheSlotIsGiven(t *testing.T) {
	s := newScratch(t)
	s.dir(users+"old", serviceID, slotID(1), 0o2770)
	s.file(users+"old/diary", "x", slotID(1), slotID(1), 0o660)
	s.dir(users+"other", serviceID, slotID(2), 0o2770)
	_, rows, err := Show(context.Background(), s.system(), On(s.host))
	s.must(err)
	wantRow(t, rows, report.Fail, "user-tree", "which old does not hold")
	_, rows, err = s.assign("u1", "slot01", plan)
	s.must(err)
	wantRow(t, rows, report.Planned, "user-tree", "was still open to slot01")
	s.is(users+"old", serviceID, slotID(1), 0o2770)
	_, rows, err = s.assign("u1", "slot01")
	s.must(err)
	wantRow(t, rows, report.Changed, "user-tree", "was still open to slot01")
	s.is(users+"old", serviceID, serviceID, 0o2770)
	s.is(users+"old/diary", serviceID, serviceID, 0o660)
	s.is(users+"other", serviceID, slotID(2), 0o2770)
}

func TestAPlanChangesNothing(t *testing.T) {
	s := newScratch(t)
	s.dir(users+"u1/dir", serviceID, serviceID, 0o755)
	s.file("/etc/agentworks/"+safefs.TempName("slots.json"), "stale", 0, 0, 0o600)
	before := s.scan()
	slot, rows, err := s.assign("u1", "", plan)
	s.must(err)
	if slot != "slot01" {
		t.Errorf("planned %s", slot)
	}
	wantRow(t, rows, report.Planned, "slot-table", "u1 holds slot01")
	wantRow(t, rows, report.Planned, "user-tree", "given to slot01: 2 differences")
	_, rows, err = s.assign("new", "", plan)
	s.must(err)
	wantRow(t, rows, report.Planned, "user-tree", "made for slot01")
	if diff := before.DiffTimes(s.scan()); len(diff) > 0 {
		t.Errorf("changed %q", diff)
	}
	s.assigned("u1", "")
	before = s.scan()
	rows, err = s.release("u1", plan)
	s.must(err)
	wantRow(t, rows, report.Planned, "slot-table", "slot01 is free")
	wantRow(t, rows, report.Planned, "user-tree", "given back to vs: 2 differences")
	if diff := before.DiffTimes(s.scan()); len(diff) > 0 {
		t.Errorf("changed %q", diff)
	}
}

func TestShow(t *testing.T) {
	s := newScratch(t)
	s.assigned("u1", "")
	s.assigned("u2", "")
	s.released("u2")
	s.file("/srv/vs/slots/state/slot02/x", "x", slotID(2), slotID(2), 0o600)
	s.process(99, slotID(1))
	before := s.scan()
	st, rows, err := Show(context.Background(), s.system(), On(s.host))
	s.must(err)
	if diff := before.DiffTimes(s.scan()); len(diff) > 0 {
		t.Errorf("changed %q", diff)
	}
	if st.Table != (TableStatus{Path: tablePath, Owner: "root", Group: "vs", Mode: "0640"}) || len(st.Slots) != slotCount {
		t.Errorf("%+v", st)
	}
	if st.Slots[0] != (SlotStatus{Slot: "slot01", User: "u1", Residue: Residue{Processes: 1}}) || st.Slots[1] != (SlotStatus{Slot: "slot02", Last: "u2", Residue: Residue{State: 1}}) {
		t.Errorf("%+v", st.Slots)
	}
	wantRow(t, rows, report.Pass, "slot-table", "readable by vs")
	wantRow(t, rows, report.Warn, "slot", "free, not clean: 1 entry in state; u2 held it last")
	wantRow(t, rows, report.Info, "slots-free", "3 of 5 slots free and clean")
	wantRow(t, rows, report.Warn, "max-commands", "not known")
	if report.Verdict(rows, false) != report.ExitOK {
		t.Error(rows)
	}

	s.dir("/usr", 0, 0, 0o755)
	for _, d := range []string{"/usr/local", "/usr/local/libexec", "/usr/local/libexec/agentworks"} {
		s.dir(d, 0, 0, 0o755)
	}
	s.file("/usr/local/libexec/agentworks/slotctl.json", `{"slot_prefix":"slot","slot_run_root":"/srv/vs/slots/run","slot_state_root":"/srv/vs/slots/state","max_commands":7}`, 0, 0, 0o644)
	st, rows, err = Show(context.Background(), s.system(), On(s.host))
	s.must(err)
	wantRow(t, rows, report.Info, "max-commands", "7 commands of one slot may run at once")
	if st.MaxCommands != 7 {
		t.Errorf("max_commands %d", st.MaxCommands)
	}

	s.mode(s.root+tablePath, strangeID, 0, 0o604)
	s.mode(s.root+users+"u1", serviceID, slotID(1), 0o2777)
	_, rows, err = Show(context.Background(), s.system(), On(s.host))
	s.must(err)
	wantRow(t, rows, report.Fail, "slot-table-owner", "owner 71900, not root")
	wantRow(t, rows, report.Fail, "slot-table-group", "group root, not vs")
	wantRow(t, rows, report.Fail, "slot-table-mode", "mode 0604, not 0640")
	wantRow(t, rows, report.Fail, "user-tree", "mode 2777 → 2770")
	s.mode(s.root+tablePath, 0, 0, 0o640)
	_, rows, err = Show(context.Background(), s.system(), On(s.host))
	s.must(err)
	wantRow(t, rows, report.Fail, "slot-table-read", "so is every slot user")
}

func TestMountsInATreeAreLeftAlone(t *testing.T) {
	s := newScratch(t)
	s.dir("/out", 0, 0, 0o755)
	s.file("/out/secret", "x", 0, 0, 0o600)
	s.dir(users+"u1/folder", serviceID, serviceID, 0o755)
	s.file(users+"u1/file", "x", serviceID, serviceID, 0o644)
	var rows []report.Row
	var err error
	labtest.WithMounts(t, map[string]string{s.root + users + "u1/folder": s.root + "/out", s.root + users + "u1/file": s.root + "/out/secret"}, func() {
		_, rows, err = s.assign("u1", "")
	})
	s.must(err)
	wantRow(t, rows, report.Warn, "user-tree", "2 mounts below "+users+"u1 left as they are")
	s.is("/out", 0, 0, 0o755)
	s.is("/out/secret", 0, 0, 0o600)
	s.is(users+"u1", serviceID, slotID(1), 0o2770)
}
