package release

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/units"
)

// site is a host in a temporary folder: real files, a stand-in for systemd and
// for what only a provisioned machine has.
type site struct {
	store   *Store
	manager *units.Manager
	calls   func() string
	log     bytes.Buffer
	answer  string // of the health URL
	url     string
	tested  func() ([]report.Row, error)
}

const well = `{"ok":true}`

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{store: testStore(t), answer: well}
	s.store.Slots = false // the chain belongs to the lab's tests
	s.manager, s.calls = stubManager(t, unitText("active", "running", 7, 0))
	s.url = answering(t, func(int) string { return s.answer })
	s.tested = func() ([]report.Row, error) { return []report.Row{{State: report.Pass, Check: "all"}}, nil }
	return s
}

func (s *site) deploy(t *testing.T, b built, want Want) ([]report.Row, Answer, *Deploy, error) {
	t.Helper()
	d := s.make()
	asked, err := s.store.look(context.Background(), b.m, b.manifest)
	must(t, err)
	rows, answer, err := d.Run(context.Background(), want, Asked{Manifest: Digest(b.manifest)}, b.payload(t, asked.Missing))
	return rows, answer, d, err
}

func (s *site) make() *Deploy {
	h := &hosts.Host{Name: "there", Product: "vs", Release: hosts.Release{Services: []string{"vs-agent"}, Health: []string{s.url}}}
	linger := filepath.Join(s.store.Layout.App, "..")
	health := testHealth(s.manager, &s.log, s.url)
	if s.answer != well {
		health.Deadline = sickWait
	}
	return &Deploy{
		Store: s.store, Manager: s.manager, Health: health, Log: &s.log,
		Preflight: &Preflight{Host: h, Store: s.store, Manager: &units.Manager{Systemctl: s.manager.Systemctl, UID: 70001}, Linger: linger,
			Admit: func(context.Context) []report.Row { return nil }},
		Steps:    &Steps{Log: &s.log, Every: time.Second},
		Arch:     "amd64",
		Glibc:    func() (string, error) { return "2.36", nil },
		SelfTest: func(context.Context) ([]report.Row, error) { return s.tested() },
	}
}

func (s *site) state(t *testing.T) string {
	t.Helper()
	return listing(t, s.store.Layout.App)
}

func (s *site) history(t *testing.T) *history {
	t.Helper()
	h, err := readHistory(s.store.Layout.App)
	must(t, err)
	return h
}

func (s *site) restarts() int { return strings.Count(s.calls(), " restart -- ") }

func find(rows []report.Row, check string) report.Row {
	for _, r := range rows {
		if r.Check == check {
			return r
		}
	}
	return report.Row{}
}

func TestDeployMakesAReleaseLive(t *testing.T) {
	s := newSite(t)
	first, second := variant(t, "one"), variant(t, "two")
	rows, answer, d, err := s.deploy(t, first, Doing)
	must(t, err)
	if find(rows, "current").State != report.Changed || find(rows, "services").State != report.Changed || len(d.SelfTestRows()) != 1 || answer.Before != "" {
		t.Fatalf("rows %v, answer %+v", rows, answer)
	}
	must(t, verify(context.Background(), s.store.Layout.Current(), first.m, first.manifest))
	if _, err := os.Lstat(filepath.Join(s.store.dir(first.m.ID), markerName)); err == nil {
		t.Error("the marker stays")
	}

	// The same id again: nothing up to the self-test.
	before, restarts := s.state(t), s.restarts()
	rows, answer, d, err = s.deploy(t, first, Doing)
	must(t, err)
	if !answer.Present || find(rows, "services").State != report.OK || len(d.SelfTestRows()) != 1 || s.restarts() != restarts {
		t.Errorf("rows %v, answer %+v", rows, answer)
	}
	if n := strings.Count(s.log.String(), "restart: done in "); n != 1 {
		t.Errorf("%d restarts are told:\n%s", n, s.log.String())
	}
	if after := s.state(t); trimLock(after) != trimLock(before) {
		t.Errorf("a deploy with nothing to do changed\n%s\nto\n%s", before, after)
	}

	_, answer, _, err = s.deploy(t, second, Doing)
	must(t, err)
	if answer.Before != first.m.ID || s.restarts() != restarts+1 {
		t.Errorf("answer %+v, %d restarts", answer, s.restarts())
	}
	// Back to the first: there, but not live; a new number.
	_, answer, _, err = s.deploy(t, first, Doing)
	must(t, err)
	if !answer.Present || answer.Before != second.m.ID {
		t.Errorf("answer %+v", answer)
	}
	// The same id with other bytes: replaced under a new number.
	must(t, os.WriteFile(filepath.Join(s.store.dir(first.m.ID), "bin/slotctl"), []byte("broken"), 0o755))
	_, _, _, err = s.deploy(t, first, Doing)
	must(t, err)
	must(t, verify(context.Background(), s.store.Layout.Current(), first.m, first.manifest))
	h := s.history(t)
	for i, id := range []string{first.m.ID, second.m.ID, first.m.ID, first.m.ID} {
		if e := h.Deploys[i]; e.Seq != i+1 || e.ID != id || e.Outcome != outcomeLive {
			t.Errorf("deploy %d is %+v", i+1, e)
		}
	}
	if len(h.Deploys) != 4 {
		t.Errorf("%d deploys", len(h.Deploys))
	}
}

// trimLock drops the lock's line: its time moves.
func trimLock(s string) string {
	var kept []string
	for _, l := range strings.Split(s, "\n") {
		if !strings.HasPrefix(l, "deploy.lock ") {
			kept = append(kept, l)
		}
	}
	return strings.Join(kept, "\n")
}

func TestPlanChangesNothing(t *testing.T) {
	s := newSite(t)
	b := variant(t, "planned")
	before := s.state(t)
	rows, answer, _, err := s.deploy(t, b, Planning)
	must(t, err)
	if find(rows, "release").State != report.Planned || find(rows, "current").State != report.Planned || len(answer.Missing) != len(b.m.contents()) {
		t.Errorf("rows %v, answer %+v", rows, answer)
	}
	if after := s.state(t); after != before {
		t.Errorf("a plan changed\n%s\nto\n%s", before, after)
	}
	// Errors included.
	must(t, os.Mkdir(s.store.Layout.Current(), 0o755))
	before = s.state(t)
	rows, _, _, err = s.deploy(t, b, Planning)
	if err != nil || find(rows, "preflight").State != report.Fail {
		t.Errorf("rows %v, %v", rows, err)
	}
	if after := s.state(t); after != before {
		t.Errorf("a refused plan changed\n%s\nto\n%s", before, after)
	}
}

func TestReleaseWithoutWhatTheUnitsStartIsRefused(t *testing.T) {
	s := newSite(t)
	shown := strings.TrimSuffix(unitText("active", "running", 7, 0), "'")
	s.manager, s.calls = stubManager(t, shown+`ExecStart={ path=`+s.store.Layout.Current()+`/bin/vs-other ; argv[]=x ; pid=0 }\n'`)
	before := s.state(t)
	for _, want := range []Want{Planning, Doing} {
		_, _, _, err := s.deploy(t, variant(t, "new"), want)
		if report.CodeOf(err) != report.ExitUsage || !strings.Contains(err.Error(), "it lacks bin/vs-other, which vs-agent.service needs; name the folder or tar of a build with --release") {
			t.Errorf("%v (%d)", err, report.CodeOf(err))
		}
	}
	if after := s.state(t); after != before || strings.Contains(s.calls(), " restart ") {
		t.Errorf("a refused release changed\n%s\nto\n%s", before, after)
	}
}

func TestFolderWithoutAProgramIsNoRelease(t *testing.T) {
	for name, files := range map[string]map[string]content{
		"sources":         {"go.mod": {data: "module x", mode: 0o644}, "tools/run.sh": {data: "#!/bin/sh", mode: 0o755}},
		"only our own":    {"bin/slotctl": {data: "x", mode: 0o755}, "bin/sample/bin/vs-agent": {data: "x", mode: 0o755}},
		"not executable":  {"bin/vs-agent": {data: "x", mode: 0o644}},
		"two releases":    {"one/bin/vs-agent": {data: "x", mode: 0o755}, "two/bin/vs-agent": {data: "x", mode: 0o755}},
		"one lower still": {"one/two/bin/vs-agent": {data: "x", mode: 0o755}},
	} {
		_, err := ReadTree(context.Background(), tree(t, t.TempDir(), files), "it")
		if err == nil || !strings.Contains(err.Error(), "is no release: its bin/ holds no program of a service") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := ReadTree(context.Background(), tree(t, t.TempDir(), map[string]content{"one/bin/vs-agent": {data: "x", mode: 0o755}}), "release.tar")
	if err == nil || !strings.HasPrefix(err.Error(), "release.tar is no release: it lies one folder lower, in one/; ") || !strings.Contains(err.Error(), "tar -C one -czf release.tar.gz .") {
		t.Errorf("one folder lower: %v", err)
	}
}

func TestManifestHoldsFilesFoldersAndWhatLinksLeadTo(t *testing.T) {
	m := &Manifest{Files: map[string]File{"bin/a": {}, "lib/x/y": {}}, Links: map[string]string{"logs": logsTarget}}
	for p, want := range map[string]bool{"bin/a": true, "./bin/a": true, "lib/x": true, "logs/today": true, "bin": true, "bin/b": false, "li": false} {
		if m.holds(p) != want {
			t.Errorf("holds %s: %v", p, !want)
		}
	}
}

func TestR08SecondDeployIsRefusedAtOnce(t *testing.T) {
	s := newSite(t)
	must(t, os.WriteFile(s.store.Layout.DeployLock(), []byte("4711 deploy/transfer 2026-10-04T12:00:00Z\n"), 0o600))
	f, err := os.Open(s.store.Layout.DeployLock())
	must(t, err)
	defer f.Close()
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	_, _, _, err = s.deploy(t, variant(t, "second"), Doing)
	if report.CodeOf(err) != report.ExitLocked {
		t.Fatalf("%v (%d)", err, report.CodeOf(err))
	}
	for _, want := range []string{"4711", "deploy/transfer", "2026-10-04T12:00:00Z"} { // who, at which step, since when (case B35)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if left, err := os.ReadDir(s.store.Layout.Releases()); err != nil || len(left) > 0 {
		t.Errorf("in releases: %v, %v", left, err)
	}
}

func TestPreflightNamesWhatIsMissing(t *testing.T) {
	s := newSite(t)
	s.manager, s.calls = stubManager(t, `printf 'LoadState=not-found\nActiveState=inactive\nSubState=dead\nMainPID=0\nNRestarts=0\n'`)
	rows, _, _, err := s.deploy(t, variant(t, "x"), Doing)
	must(t, err)
	if r := find(rows, "preflight"); r.State != report.Fail || !strings.Contains(r.Detail, "unit vs-agent.service is not-found") {
		t.Errorf("rows %v", rows)
	}
	s = newSite(t)
	must(t, os.Remove(s.store.Layout.Releases()))
	d := s.make()
	b := variant(t, "y")
	rows, _, err = d.Run(context.Background(), Doing, Asked{Manifest: Digest(b.manifest)}, b.payload(t, nil))
	must(t, err)
	r := find(rows, "preflight")
	if r.State != report.Fail || r.Fix.Command() != "agentworks-deploy provision there" {
		t.Errorf("rows %v", rows)
	}
}
