package release

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentworks-deploy/internal/report"
)

func TestFailureBeforeTheSwitchLeavesTheHostAsItWas(t *testing.T) {
	b := variant(t, "new")
	disk := errors.New("input/output error")
	for name, c := range map[string]struct {
		brk  func(t *testing.T, s *site, d *Deploy) *Payload
		want string
	}{
		"payload cut": {func(t *testing.T, s *site, d *Deploy) *Payload {
			var buf bytes.Buffer
			must(t, WritePayload(context.Background(), &buf, b.manifest, b.m, b.tree, nil, nil))
			return ReadPayload(&buf)
		}, "was not sent"},
		"disk": {func(t *testing.T, s *site, d *Deploy) *Payload {
			s.store.SyncFS = func(int) error { return disk }
			return nil
		}, disk.Error()},
		"names on the disk": {func(t *testing.T, s *site, d *Deploy) *Payload {
			s.store.SyncDir = func(int) error { return disk }
			return nil
		}, disk.Error()},
		"leftovers": {func(t *testing.T, s *site, d *Deploy) *Payload {
			must(t, os.MkdirAll(filepath.Join(s.store.Layout.App, ".current.agentworks-new"), 0o755))
			must(t, os.WriteFile(filepath.Join(s.store.Layout.App, ".current.agentworks-new/x"), nil, 0o644))
			return nil
		}, "directory not empty"},
		"other arch": {func(t *testing.T, s *site, d *Deploy) *Payload {
			d.Arch = "arm64"
			return nil
		}, "built for amd64"},
		"other glibc": {func(t *testing.T, s *site, d *Deploy) *Payload {
			d.Glibc = func() (string, error) { return "", disk }
			return nil
		}, disk.Error()},
		"history": {func(t *testing.T, s *site, d *Deploy) *Payload {
			must(t, os.WriteFile(filepath.Join(s.store.Layout.App, historyName), []byte("{"), 0o600))
			return nil
		}, "deploy history"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			_, _, _, err := s.deploy(t, variant(t, "old"), Doing)
			must(t, err)
			restarts := s.restarts()
			d := s.make()
			p := c.brk(t, s, d)
			before := trimLock(s.state(t))
			if p == nil {
				l, err := s.store.look(context.Background(), b.m, b.manifest)
				must(t, err)
				p = b.payload(t, l.Missing)
			}
			_, _, err = d.Run(context.Background(), Doing, Asked{Manifest: Digest(b.manifest)}, p)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			after := trimLock(s.state(t))
			if undated(after) != undated(before) || s.restarts() != restarts {
				t.Errorf("changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

// undated drops the times of folders and of the log from a listing.
func undated(listing string) string {
	var kept []string
	for _, l := range strings.Split(listing, "\n") {
		f := strings.Split(l, " ")
		if len(f) > 2 && (strings.HasPrefix(f[1], "d") || f[0] == historyName) {
			l = f[0] + " " + f[1]
		}
		kept = append(kept, l)
	}
	return strings.Join(kept, "\n")
}

func TestR03FailureAfterTheSwitchIsLoudAndRollsNothingBack(t *testing.T) {
	s := newSite(t)
	old, b := variant(t, "old"), variant(t, "new")
	_, _, _, err := s.deploy(t, old, Doing)
	must(t, err)
	s.answer = `{"ok":false}`
	rows, _, d, err := s.deploy(t, b, Doing)
	if row := find(rows, "health"); report.CodeOf(err) != report.ExitState || row.State != report.Fail || !strings.Contains(row.Detail, "ok is false") {
		t.Fatalf("%v (%d) %v", err, report.CodeOf(err), rows)
	}
	if len(d.SelfTestRows()) != 1 { // users' commands run, or not, whatever the services do
		t.Error("no self-test beside sick services")
	}
	for _, want := range []string{"release " + b.m.ID + " is live on there, but: ", "ok is false", old.m.ID + ") was not put back; to go back: agentworks-deploy deploy there --release " + old.m.ID} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if !strings.Contains(s.log.String(), "vs-agent: line 20") {
		t.Errorf("no journal in\n%s", s.log.String())
	}
	if id, _, err := s.store.current(); err != nil || id != b.m.ID {
		t.Errorf("current names %s, %v", id, err)
	}
	if last, _ := s.history(t).last(); last.Outcome != outcomeUnhealthy {
		t.Errorf("recorded as %+v", last)
	}
	if left, err := s.store.leftovers(""); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}

	// The next run of the same release restarts the services and sees them well.
	restarts := s.restarts()
	s.answer = well
	s.tested = func() ([]report.Row, error) {
		return []report.Row{{State: report.Fail, Check: "runner-reachable"}}, nil
	}
	_, _, d, err = s.deploy(t, b, Doing)
	must(t, err)
	if s.restarts() != restarts+1 || report.Verdict(d.SelfTestRows(), false) != report.ExitState {
		t.Errorf("%d restarts, self-test %v", s.restarts()-restarts, d.SelfTestRows())
	}
	if id, _, err := s.store.current(); err != nil || id != b.m.ID {
		t.Errorf("after a failed self-test current names %s, %v", id, err)
	}
}

func TestRunThatWasCutOffIsFinishedByTheNext(t *testing.T) {
	b := variant(t, "cut")
	for name, cut := range map[string]func(t *testing.T, s *site){
		"before the switch": func(t *testing.T, s *site) {
			h := s.history(t)
			h.begin(b.m.ID, Digest(b.manifest), time.Now())
			must(t, writeHistory(s.store.Layout.App, h))
		},
		"between rename and switch": func(t *testing.T, s *site) {
			h := s.history(t)
			h.begin(b.m.ID, Digest(b.manifest), time.Now())
			must(t, writeHistory(s.store.Layout.App, h))
			was, _, err := s.store.current()
			must(t, err)
			install(t, s.store, b)
			_, err = s.store.switchTo(was)
			must(t, err)
			must(t, os.WriteFile(filepath.Join(s.store.dir(b.m.ID), markerName), []byte(marker(time.Now())), 0o600))
		},
		"before the restart": func(t *testing.T, s *site) {
			h := s.history(t)
			h.begin(b.m.ID, Digest(b.manifest), time.Now())
			must(t, writeHistory(s.store.Layout.App, h))
			install(t, s.store, b)
			must(t, os.WriteFile(filepath.Join(s.store.dir(b.m.ID), markerName), []byte(marker(time.Now())), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			_, _, _, err := s.deploy(t, variant(t, "old"), Doing)
			must(t, err)
			cut(t, s)
			restarts := s.restarts()
			_, _, _, err = s.deploy(t, b, Doing)
			must(t, err)
			if h := s.history(t); len(h.Deploys) != 2 || h.Deploys[1].Outcome != outcomeLive || h.Deploys[1].Seq != 2 {
				t.Errorf("history %+v", h)
			}
			if s.restarts() != restarts+1 {
				t.Error("the services were not restarted")
			}
			if left, err := s.store.leftovers(""); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
}

func TestDeployStopsWhenItsCallerIsGone(t *testing.T) {
	s := newSite(t)
	b := variant(t, "gone")
	ctx, cancel := context.WithCancel(context.Background())
	body, sink := io.Pipe()
	go func() {
		must(t, WritePayload(ctx, sink, b.manifest, b.m, b.tree, nil, nil))
		cancel()
		sink.CloseWithError(io.ErrUnexpectedEOF)
	}()
	_, _, err := s.make().Run(ctx, Doing, Asked{Manifest: Digest(b.manifest)}, ReadPayload(body))
	if err == nil {
		t.Fatal("no error")
	}
	if left, err := os.ReadDir(s.store.Layout.Releases()); err != nil || len(left) > 0 {
		t.Errorf("in releases: %v, %v", left, err)
	}
}
