package release

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentworks-deploy/internal/report"
)

// again deploys a release that lies on the host, by its id.
func (s *site) again(want Want, id string) ([]report.Row, Answer, error) {
	return s.make().Run(context.Background(), want, Asked{ID: id}, nil)
}

func TestReleaseOfTheHostGoesLiveByItsID(t *testing.T) {
	s := newSite(t)
	first, second := variant(t, "one"), variant(t, "two")
	for _, b := range []built{first, second} {
		_, _, _, err := s.deploy(t, b, Doing)
		must(t, err)
	}
	before := s.state(t)
	rows, _, err := s.again(Planning, first.m.ID)
	must(t, err)
	if r := find(rows, "current"); r.State != report.Planned || !strings.Contains(r.Detail, first.m.ID) {
		t.Errorf("plan: %v", rows)
	}
	if after := s.state(t); after != before {
		t.Errorf("a plan changed\n%s\nto\n%s", before, after)
	}
	restarts := s.restarts()
	must(t, os.Chmod(filepath.Join(s.store.dir(first.m.ID), "frontend/index.html"), 0o666))
	rows, answer, err := s.again(Doing, first.m.ID)
	must(t, err)
	if answer.Before != second.m.ID || s.restarts() != restarts+1 || find(rows, "modes").State != report.Changed || find(rows, "health").State != report.OK {
		t.Errorf("answer %+v, rows %v", answer, rows)
	}
	if last, _ := s.history(t).last(); last.Seq != 3 || last.ID != first.m.ID || last.Outcome != outcomeLive {
		t.Errorf("recorded as %+v", last)
	}
	must(t, verify(context.Background(), s.store.Layout.Current(), first.m, first.manifest))
}

func TestReleaseOfTheHostThatIsNotWholeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		slip func(t *testing.T, s *site, b built) string
		code int
		want string
	}{
		"a byte": {func(t *testing.T, s *site, b built) string {
			must(t, os.WriteFile(filepath.Join(s.store.dir(b.m.ID), "bin/slotctl"), []byte("broken"), 0o755))
			return b.m.ID
		}, report.ExitState, "bin/slotctl: 6 bytes, the manifest says "},
		"no manifest": {func(t *testing.T, s *site, b built) string {
			must(t, os.Remove(filepath.Join(s.store.dir(b.m.ID), manifestName)))
			return b.m.ID
		}, report.ExitState, "cannot be told whole"},
		"another's manifest": {func(t *testing.T, s *site, b built) string {
			must(t, os.WriteFile(filepath.Join(s.store.dir(b.m.ID), manifestName), variant(t, "three").manifest, 0o644))
			return b.m.ID
		}, report.ExitState, "it is that of vs-"},
		"not what went live": {func(t *testing.T, s *site, b built) string {
			h := s.history(t)
			h.Deploys[0].Manifest = strings.Repeat("0", 64)
			must(t, writeHistory(s.store.Layout.App, h))
			return b.m.ID
		}, report.ExitState, "not the one that it went live with"},
		"unknown": {func(*testing.T, *site, built) string { return "vs-00000000-20200101000000" }, report.ExitUsage, "unknown release vs-00000000-20200101000000: there has "},
		"no id":   {func(*testing.T, *site, built) string { return "../releases" }, report.ExitUsage, "unknown release ../releases: there has "},
		"a link": {func(t *testing.T, s *site, b built) string {
			id := "vs-00000000-20200101000000"
			must(t, os.Symlink(b.m.ID, s.store.dir(id)))
			return id
		}, report.ExitState, "it is that of vs-"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			first, second := variant(t, "one"), variant(t, "two")
			for _, b := range []built{first, second} {
				_, _, _, err := s.deploy(t, b, Doing)
				must(t, err)
			}
			id := c.slip(t, s, first)
			before := trimLock(s.state(t))
			for _, want := range []Want{Planning, Doing} {
				_, _, err := s.again(want, id)
				if report.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v (%d), want %q", err, report.CodeOf(err), c.want)
				}
				if c.code == report.ExitUsage && !strings.HasSuffix(err.Error(), second.m.ID+", "+first.m.ID) {
					t.Errorf("not the newest first: %v", err)
				}
			}
			if after := trimLock(s.state(t)); after != before {
				t.Errorf("a refused release changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

// Building the same again gives other times, and so another id, to what has none
// of its own.
func TestSameContentIsTheReleaseThatIsThere(t *testing.T) {
	s := newSite(t)
	files, runtime := sampleTree(), programs(t, "1")
	dir := tree(t, t.TempDir(), files)
	first := build(t, dir, runtime)
	_, _, _, err := s.deploy(t, first, Doing)
	must(t, err)
	later := time.Now().Add(time.Hour)
	must(t, os.Chtimes(filepath.Join(dir, "frontend/index.html"), later, later))
	second := build(t, dir, runtime)
	if second.m.ID == first.m.ID || second.tree.Named() {
		t.Fatalf("ids %s and %s", first.m.ID, second.m.ID)
	}
	run := func(unnamed bool) ([]report.Row, Answer) {
		t.Helper()
		rows, answer, err := s.make().Run(context.Background(), Doing, Asked{Manifest: Digest(second.manifest), Unnamed: unnamed}, second.payload(t, nil))
		must(t, err)
		return rows, answer
	}
	before, restarts := trimLock(s.state(t)), s.restarts()
	rows, answer := run(true)
	if answer.Release != first.m.ID || !answer.Present || find(rows, "services").State != report.OK || s.restarts() != restarts {
		t.Errorf("answer %+v, rows %v", answer, rows)
	}
	if after := trimLock(s.state(t)); after != before {
		t.Errorf("the same content changed\n%s\nto\n%s", before, after)
	}
	// What its build has named is that release and no other.
	if rows, answer = run(false); answer.Release != second.m.ID || s.restarts() != restarts+1 {
		t.Errorf("answer %+v, rows %v", answer, rows)
	}
}

// Whoever ends a run, and wherever, it says what runs then and what to type.
func TestRunThatIsCutOffSaysWhatRuns(t *testing.T) {
	gone := errors.New("the caller is gone")
	for at, step := range map[string]string{"staged": "transfer", "placed": "restart", "asked": "health", "tested": "self-test"} {
		t.Run(step, func(t *testing.T) {
			s := newSite(t)
			old, b := variant(t, "old"), variant(t, "new")
			_, _, _, err := s.deploy(t, old, Doing)
			must(t, err)
			ctx, end := context.WithCancelCause(context.Background())
			here := func(where string) {
				if where == at {
					end(gone)
				}
			}
			sync := s.store.SyncDir
			s.store.SyncFS = func(int) error { here("staged"); return nil }
			s.store.SyncDir = func(fd int) error { here("placed"); return sync(fd) }
			s.url = answering(t, func(int) string { here("asked"); return well })
			s.tested = func() ([]report.Row, error) { here("tested"); return nil, context.Cause(ctx) }
			l, err := s.store.look(ctx, b.m, b.manifest)
			must(t, err)
			_, _, err = s.make().Run(ctx, Doing, Asked{Manifest: Digest(b.manifest)}, b.payload(t, l.Missing))
			if err == nil {
				t.Fatal("no error")
			}
			const typed = "agentworks-deploy deploy there --release "
			want := "release " + b.m.ID + " is live on there but unproven: " + step + " was cut off: the caller is gone; to go on: " + typed + b.m.ID +
				"; the release before it (" + old.m.ID + ") was not put back; to go back: " + typed + old.m.ID
			if step == "transfer" {
				want = step + " was cut off: the caller is gone; nothing was switched, " + old.m.ID + " is live as before"
			}
			if err.Error() != want {
				t.Errorf("says\n%s, want\n%s", err, want)
			}
			if step == "transfer" {
				return
			}
			// What it says works, and the number stays that of the deploy that was cut off.
			s.tested = func() ([]report.Row, error) { return nil, nil }
			_, _, err = s.again(Doing, b.m.ID)
			must(t, err)
			if last, _ := s.history(t).last(); last.Seq != 2 || last.Outcome != outcomeLive {
				t.Errorf("gone on with as %+v", last)
			}
			// A second end of it still knows what was live before both.
			s.tested = func() ([]report.Row, error) { return nil, gone }
			if _, _, err = s.again(Doing, b.m.ID); err == nil || !strings.HasSuffix(err.Error(), "to go back: "+typed+old.m.ID) {
				t.Errorf("says %v", err)
			}
		})
	}
}
