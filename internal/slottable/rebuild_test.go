package slottable

import (
	"context"
	"os"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
)

func (s *scratch) rebuilt(plan bool) ([]report.Row, error) {
	s.Helper()
	req := On(s.host)
	req.Plan = plan
	return Rebuild(context.Background(), s.system(), req)
}

// TestRebuildGoesByTheTrees: the table that somebody broke comes back as it was,
// and what could not be read is kept.
func TestRebuildGoesByTheTrees(t *testing.T) {
	const broken = `{"slots":{"slot01":"u1",`
	for _, gone := range []bool{false, true} {
		s := newScratch(t)
		s.assigned("u1", "slot01")
		s.assigned("u.2", "slot03")
		s.dir("/srv/vs/data/docs/_users/u9", serviceID, serviceID, 0o770)
		s.dir("/srv/vs/data/docs/_users/stranger", strangeID, slotID(2), 0o770) // not the service's
		s.dir("/srv/vs/data/docs/_users/_shared", serviceID, slotID(4), 0o770)  // no person
		if gone {
			s.must(os.Remove(s.root + tablePath))
		} else {
			s.file(tablePath, broken, 0, serviceID, 0o640)
		}
		if rows, err := s.rebuilt(true); err != nil || rows[0].State != report.Planned {
			t.Fatalf("plan: %v, %v", rows, err)
		}
		if _, err := os.Stat(s.root + tablePath); gone != os.IsNotExist(err) {
			t.Fatalf("the plan changed the table: %v", err)
		}
		if rows, err := s.rebuilt(false); err != nil {
			t.Fatalf("%v, %v", rows, err)
		}
		s.is(tablePath, 0, serviceID, 0o640)
		if got := s.table(); len(got.Slots()) != 2 || got.User("slot01") != "u1" || got.User("slot03") != "u.2" {
			t.Errorf("table %s", s.read(tablePath))
		}
		if !gone {
			s.is(tablePath+unreadable, 0, 0, 0o600)
			if s.read(tablePath+unreadable) != broken {
				t.Errorf("kept %q", s.read(tablePath+unreadable))
			}
		}
		if rows, err := s.rebuilt(false); err != nil || len(rows) != 1 || rows[0].State != report.OK {
			t.Errorf("a second run: %v, %v", rows, err)
		}
	}
}

func TestRebuildRefusesToGuess(t *testing.T) {
	s := newScratch(t)
	s.assigned("u1", "slot01")
	s.dir("/srv/vs/data/docs/_users/u2", serviceID, slotID(1), 0o770)
	s.file(tablePath, `{`, 0, serviceID, 0o640)
	_, err := s.rebuilt(false)
	if report.CodeOf(err) != report.ExitState || !strings.Contains(err.Error(), "u1 and u2 have that of slot01") {
		t.Errorf("error %v", err)
	}
	if got := s.read(tablePath); got != `{` {
		t.Errorf("the table is now %q", got)
	}
}
