package slottable

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/sandbox/slots"
)

const tablePath = "/etc/agentworks/slots.json"

func (s *scratch) table() *slots.Table {
	s.Helper()
	t, err := slots.ParseTable([]byte(s.read(tablePath)), "slot")
	s.must(err)
	return t
}

func TestT01B23TheServiceKeepsTheTable(t *testing.T) {
	s := newScratch(t)
	s.file(tablePath, `{"slots":{"slot01":"u1","slot02":"u2"}}`, 0, serviceID, 0o640)
	s.dir("/srv/vs/data/docs/_users/u1", serviceID, slotID(1), 0o2770)
	s.must(unix.Setxattr(s.root+tablePath, "user.note", []byte("kept"), 0))
	for _, step := range []func(){func() { s.released("u1") }, func() { s.assigned("u1", "slot01") }} {
		step()
		s.is(tablePath, 0, serviceID, 0o640)
		buf := make([]byte, 8)
		if n, err := unix.Getxattr(s.root+tablePath, "user.note", buf); err != nil || string(buf[:n]) != "kept" {
			t.Errorf("attribute %q, %v", buf[:n], err)
		}
	}
	if got := s.table().Slots(); fmt.Sprint(got) != "[slot01 slot02]" {
		t.Error(got)
	}
}

func TestT02OddGroupIsKeptBadModeRepairedExtraKeysSurvive(t *testing.T) {
	s := newScratch(t)
	s.file(tablePath, `{"note":{"n":12345678901234567890,"html":"<&>"},"slots":{},"z":[1, 2]}`, 0, strangeID, 0o600)
	_, _, err := s.assign("u1", "")
	// The service cannot read such a table, and that must be loud.
	refused(t, err, report.ExitState, "the service account vs cannot use the slot table")
	s.is(tablePath, 0, strangeID, 0o640)
	got := s.read(tablePath)
	for _, part := range []string{`12345678901234567890`, `"<&>"`, `"z"`, `"slot01": "u1"`} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s in %s", part, got)
		}
	}
	s.mode(s.root+tablePath, 0, serviceID, 0o600)
	s.assigned("u1", "")
	s.is(tablePath, 0, serviceID, 0o640)
	s.is("/srv/vs/data/docs/_users/u1", serviceID, slotID(1), 0o2770)
}

func TestT03Rules(t *testing.T) {
	s := newScratch(t)
	if got := s.assigned("u1", ""); got != "slot01" {
		t.Errorf("u1 got %s", got)
	}
	if got := s.assigned("u2", "slot03"); got != "slot03" {
		t.Errorf("u2 got %s", got)
	}
	var before, after unix.Stat_t
	s.must(unix.Stat(s.root+tablePath, &before))
	if got := s.assigned("u1", ""); got != "slot01" {
		t.Errorf("u1 got %s the second time", got)
	}
	s.assigned("u1", "slot01")
	s.must(unix.Stat(s.root+tablePath, &after))
	if before.Ctim != after.Ctim || before.Ino != after.Ino {
		t.Error("the table was touched")
	}

	state := s.scan()
	_, _, err := s.assign("u3", "slot01")
	refused(t, err, report.ExitState, "slot01 is held by u1")
	_, _, err = s.assign("u1", "slot02")
	refused(t, err, report.ExitState, "u1 holds slot01 already")
	_, err = s.release("u3")
	refused(t, err, report.ExitState, "u3 holds no slot")
	for _, user := range []string{"u1;id", "", ".", "..", "-rf", "a/b", "_shared", "_system_global_secrets", "a b", strings.Repeat("a", 129), "u1\n"} {
		_, _, err = s.assign(user, "")
		refused(t, err, report.ExitUsage, "is not a user id")
		_, err = s.release(user)
		refused(t, err, report.ExitUsage, "is not a user id")
	}
	for _, slot := range []string{"slot1", "slot00", "slot06", "cf01", "slot001", "slot01x", "../x"} {
		_, _, err = s.assign("u3", slot)
		refused(t, err, report.ExitUsage, "is no slot of this host")
	}
	if diff := state.DiffTimes(s.scan()); len(diff) > 0 {
		t.Errorf("refusals changed %q", diff)
	}

	if got := s.assigned("u3", ""); got != "slot02" {
		t.Errorf("the lowest free one is %s", got)
	}
	s.assigned("u4", "")
	s.assigned("u5", "")
	_, _, err = s.assign("u6", "")
	refused(t, err, report.ExitState, "all 5 are held")
}

func TestT05B28ParallelAssigns(t *testing.T) {
	const users = 200
	s := newScratch(t)
	s.host = scratchHost(users)
	for n := 1; n <= users; n++ {
		name := s.host.Layout().Slot(n)
		for _, f := range []string{"home", "state", "run"} {
			s.dir("/srv/vs/slots/"+f+"/"+name, serviceID, slotID(n), 0o700)
		}
	}
	sys := scratchSystem(s.root, users)
	got := make([]string, users)
	var group sync.WaitGroup
	for i := range users {
		group.Go(func() {
			var err error
			got[i], _, err = Assign(context.Background(), sys, s.request(fmt.Sprintf("u%d", i), ""))
			if err != nil && report.CodeOf(err) != report.ExitLocked {
				t.Error(err)
			}
		})
	}
	group.Wait()
	table := s.table()
	s.is(tablePath, 0, serviceID, 0o640)
	held := 0
	for i, slot := range got {
		if slot == "" { // a refusal: the lock came too late
			continue
		}
		held++
		if table.User(slot) != fmt.Sprintf("u%d", i) {
			t.Errorf("u%d was told %s, which %q holds", i, slot, table.User(slot))
		}
	}
	if n := len(table.Slots()); n != held || held < 10 {
		t.Errorf("%d slots held, %d users were told so", n, held)
	}
}

func TestB28ALockedTableNamesItsHolder(t *testing.T) {
	t.Parallel()
	s := newScratch(t)
	holder := safefs.Holder{PID: 4711, Verb: "slots-release", Since: time.Date(2026, 10, 4, 12, 0, 0, 0, time.UTC)}
	lock, err := safefs.Acquire(context.Background(), s.root+tablePath+".lock", holder, 0)
	s.must(err)
	defer lock.Release()
	before := s.scan()
	_, _, err = s.assign("u1", "") // waits its 10 s
	refused(t, err, report.ExitLocked, "slots-release (pid 4711) since 2026-10-04T12:00:00Z")
	if diff := before.DiffTimes(s.scan()); len(diff) > 0 {
		t.Errorf("changed %q", diff)
	}
	// Readers and plans take no lock.
	_, _, err = s.assign("u1", "", plan)
	s.must(err)
	_, _, err = Show(context.Background(), s.system(), On(s.host))
	s.must(err)
}

func TestT06AFailedWriteKeepsTheTable(t *testing.T) {
	s := newScratch(t)
	s.assigned("u1", "")
	before := s.read(tablePath)
	s.dir("/etc/agentworks/"+safefs.TempName("slots.json"), 0, 0, 0o700)
	_, _, err := s.assign("u2", "")
	refused(t, err, report.ExitState, "is in the way")
	_, err = s.release("u1")
	refused(t, err, report.ExitState, "is in the way")
	if got := s.read(tablePath); got != before {
		t.Errorf("the table is %s", got)
	}
	s.is(tablePath, 0, serviceID, 0o640)
}

func TestInvalidTablesAndNotesAreRefused(t *testing.T) {
	for _, text := range []string{``, `{}`, `{"slots":{"root":"u1"}}`, `{"slots":{"slot01":"u1","slot02":"u1"}}`, `{"slots":{"slot01":"../u"}}`, `[]`} {
		s := newScratch(t)
		s.file(tablePath, text, 0, serviceID, 0o640)
		_, _, err := s.assign("u5", "")
		refused(t, err, report.ExitState, "is refused as it is")
		if got := s.read(tablePath); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	s := newScratch(t)
	s.file("/etc/agentworks/slots.history.json", `{`, 0, 0, 0o600)
	_, _, err := s.assign("u5", "")
	refused(t, err, report.ExitState, "nobody knows who left which slot")

	s = newScratch(t)
	s.must(os.Remove(s.root + tablePath))
	_, _, err = s.assign("u1", "")
	refused(t, err, report.ExitState, "agentworks-deploy provision box")
	s.must(os.Symlink("/etc/passwd", s.root+tablePath))
	if _, _, err = s.assign("u1", ""); err == nil {
		t.Error("a link passed for the table")
	}
}

// The service's view of a file is the account's, not root's.
func TestReadAsIsTheAccount(t *testing.T) {
	s := newScratch(t)
	who := ids{serviceID, serviceID}
	for _, c := range []struct {
		uid, gid int
		mode     uint32
		groups   []int
		ok       bool
	}{
		{0, serviceID, 0o640, nil, true},
		{0, 0, 0o640, nil, false},
		{0, strangeID, 0o640, nil, false},
		{0, strangeID, 0o640, []int{strangeID}, true},
		{serviceID, 0, 0o400, nil, true},
		{serviceID, serviceID, 0o040, nil, false},
	} {
		s.mode(s.root+tablePath, c.uid, c.gid, c.mode)
		_, err := readAs(who, c.groups, s.root+tablePath, 100)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if os.Geteuid() != 0 {
		t.Error("the process changed")
	}
	s.mode(s.root+tablePath, 0, serviceID, 0o640)
	s.mode(s.root+"/etc/agentworks", 0, 0, 0o700)
	if _, err := readAs(who, nil, s.root+tablePath, 100); err == nil {
		t.Error("a closed folder was passed")
	}
}

func FuzzRewrite(f *testing.F) {
	f.Add([]byte(`{"slots":{"slot01":"u1"}}`))
	f.Add([]byte(`{"note":[1e400,"<"],"slots":{}}`))
	f.Add([]byte(`{"slots":{},"slots":{"slot02":"u2"},"Slots":{"slot03":"u3"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		old, err := parseTable(data, "slot")
		if err != nil || old.User("slot09") != "" || old.Slot("new") != "" {
			return
		}
		_, next, err := old.with("slot", "slot09", "new")
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if next.User("slot09") != "new" || len(next.Slots()) != len(old.Slots())+1 || len(next.others) != len(old.others) {
			t.Fatalf("%q became %v", data, next)
		}
		for _, slot := range old.Slots() {
			if next.User(slot) != old.User(slot) {
				t.Fatalf("%q: %s changed hands", data, slot)
			}
		}
	})
}

func FuzzParseHistory(f *testing.F) {
	f.Add([]byte(`{"slots":{"slot01":{"user":"u1","released":"2026-10-04T12:00:00Z"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := parseHistory(data)
		if err != nil {
			return
		}
		text, err := encode(nil, "slots", h.Slots)
		if err != nil {
			return // years beyond 9999 have no text
		}
		again, err := parseHistory(text)
		if err != nil || len(again.Slots) != len(h.Slots) {
			t.Fatalf("%q became %q, %v", data, text, err)
		}
	})
}
