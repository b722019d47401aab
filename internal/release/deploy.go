package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/units"
)

// Timeouts of the steps on the host. The transfer's is the longest a person
// waits for a slow line; the health's own deadline is Health.Deadline.
const (
	preflightTimeout = time.Minute
	compareTimeout   = 15 * time.Minute
	transferTimeout  = 2 * time.Hour
	switchTimeout    = time.Minute
	restartTimeout   = 3 * time.Minute
	selfTestTimeout  = 15 * time.Minute
	healthSlack      = 15 * time.Second // over the health's own deadline
	journalLines     = 20
)

// Answer is what a deploy's host side tells besides rows. Missing are the
// digests that have to be sent.
type Answer struct {
	Release string   `json:"release"`
	Before  string   `json:"before,omitempty"` // the release that was live
	Present bool     `json:"present"`
	Missing []string `json:"missing,omitempty"`
	Bytes   int64    `json:"bytes,omitempty"` // of Missing
}

// Deploy is one deploy on its host, as the service account.
type Deploy struct {
	Store     *Store
	Preflight *Preflight
	Manager   *units.Manager
	Health    *Health
	Steps     *Steps
	Log       io.Writer
	Arch      string // of this host, as GOARCH spells it
	Glibc     func() (string, error)
	// SelfTest audits the host at the end, through the release that is live.
	SelfTest func(ctx context.Context) ([]report.Row, error)

	manifest []byte
	m        *Manifest
	look     *look
	history  *history
	before   string // the release that current named when the run began
	was      string // the same for messages: also what is no release, or "none"
	rows     []report.Row
	tested   []report.Row
	switched bool
}

// SelfTestRows are the rows of the self-test that Run ended with.
func (d *Deploy) SelfTestRows() []report.Row { return d.tested }

// Want says how far a deploy goes.
type Want int

// Planning changes nothing and takes no lock. Asking takes the lock and
// answers what has to be sent. Doing does it.
const (
	Planning Want = iota
	Asking
	Doing
)

// Run deploys the release whose manifest begins the payload; announced is that
// manifest's hex sha256. The rows are true also beside an error. Without an
// error and without a FAIL the release is live and healthy.
func (d *Deploy) Run(ctx context.Context, want Want, announced string, payload *Payload) (rows []report.Row, answer Answer, err error) {
	defer func() { rows = d.rows }()
	d.m, d.manifest, err = payload.manifest(announced)
	if err != nil {
		return nil, answer, report.Coded(report.ExitState, "%w", err)
	}
	answer.Release = d.m.ID
	if ready, err := d.ready(ctx); err != nil || !ready {
		if want != Planning { // a refused host keeps nothing of ours
			err = errors.Join(err, d.Store.dropHalves())
		}
		return nil, answer, err
	}
	if want != Planning {
		unlock, lockErr := d.lock(ctx)
		if lockErr != nil {
			return nil, answer, lockErr
		}
		defer func() { err = errors.Join(err, unlock()) }()
	}
	if err := d.compare(ctx); err != nil {
		return nil, answer, err
	}
	answer.Before, answer.Present, answer.Missing, answer.Bytes = d.before, d.look.Present, d.look.Missing, d.look.Bytes
	if want != Doing {
		return nil, answer, d.plan()
	}
	return nil, answer, d.do(ctx, payload)
}

func (d *Deploy) row(s report.State, check, format string, args ...any) {
	d.rows = append(d.rows, report.Row{State: s, Check: check, Detail: fmt.Sprintf(format, args...)})
}

// lock takes deploy.lock, which is never waited for: two deploys at once are
// something to be told at once (cases R-08, B35, B36). It says in its content
// which step its holder is at.
func (d *Deploy) lock(ctx context.Context) (unlock func() error, err error) {
	me := safefs.Holder{PID: os.Getpid(), Verb: "deploy", Since: time.Now()}
	l, err := safefs.Acquire(ctx, d.Store.Layout.DeployLock(), me, 0)
	var held *safefs.LockedError
	if errors.As(err, &held) {
		return nil, report.Coded(report.ExitLocked, "another deploy is at work: %w; wait for its end, the lock goes with its holder", err)
	}
	if err != nil {
		return nil, report.Coded(report.ExitState, "take the deploy lock: %w", err)
	}
	d.Steps.Enter = func(step string) error {
		me.Verb = "deploy/" + step
		return l.Update(me)
	}
	return l.Release, nil
}

// ready runs the preflight, and refuses a release of another machine.
func (d *Deploy) ready(ctx context.Context) (bool, error) {
	err := d.Steps.Do(ctx, "preflight", preflightTimeout, func(ctx context.Context) error {
		glibc, err := d.Glibc()
		if err != nil {
			return err
		}
		if err := d.m.checkHost(d.Store.Layout.Product, d.Arch, glibc); err != nil {
			return report.Coded(report.ExitState, "%w", err)
		}
		rows, err := d.Preflight.check(ctx)
		d.rows = append(d.rows, rows...)
		if err != nil || report.Count(rows).Failed > 0 {
			return err
		}
		return d.Preflight.lacks(ctx, d.m)
	})
	return err == nil && report.Count(d.rows).Failed == 0, err
}

// compare finds out what the host has, and what stands in its log.
func (d *Deploy) compare(ctx context.Context) error {
	return d.Steps.Do(ctx, "compare", compareTimeout, func(ctx context.Context) (err error) {
		var target string
		if d.before, target, err = d.Store.current(); err != nil {
			return err
		}
		d.was = cmp.Or(d.before, target, "none")
		if d.history, err = readHistory(d.Store.Layout.App); err != nil {
			return err
		}
		if d.look, err = d.Store.look(ctx, d.m, d.manifest); err != nil {
			return err
		}
		if d.look.Present {
			return nil
		}
		return d.Store.room(d.m.size())
	})
}

// settled tells whether the release is live already and was judged healthy, so
// that nothing has to be switched or restarted.
func (d *Deploy) settled() bool {
	last, ok := d.history.last()
	return d.look.Present && d.before == d.m.ID && ok && last.ID == d.m.ID && last.Manifest == Digest(d.manifest) && last.Outcome == outcomeLive
}

// plan says in rows what do would do.
func (d *Deploy) plan() error {
	left, err := d.Store.leftovers(d.m.ID)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		d.row(report.Planned, "leftovers", "remove %s", strings.Join(left, ", "))
	}
	if d.look.Present {
		d.row(report.OK, "release", "%s is there and every byte is right", d.m.ID)
	} else {
		if d.look.Broken != nil {
			d.row(report.Planned, "release", "replace what is broken: %v", d.look.Broken)
		}
		d.row(report.Planned, "release", "%s: %s", d.m.ID, d.sizes())
	}
	if d.settled() {
		d.row(report.OK, "current", "names it, its services were judged healthy")
		return nil
	}
	d.row(report.Planned, "current", "%s → %s", d.was, d.m.ID)
	d.row(report.Planned, "services", "restart %s", strings.Join(d.Health.Units, ", "))
	return nil
}

func (d *Deploy) sizes() string {
	all := len(d.m.contents())
	return fmt.Sprintf("%d files, %s; %d contents to send (%s), %d already on the host", len(d.m.Files), human(d.m.size()), len(d.look.Missing), human(d.look.Bytes), all-len(d.look.Missing))
}

// do brings the release live. Whatever fails before the switch is undone.
func (d *Deploy) do(ctx context.Context, payload *Payload) error {
	if err := d.clean(); err != nil {
		return err
	}
	fresh := !d.look.Present
	err := d.prepare(ctx, payload)
	if err == nil {
		err = d.activate(ctx)
	}
	if err != nil && !d.switched {
		var undo error
		if fresh {
			undo = d.Store.remove(staging(d.m.ID))
		}
		return errors.Join(err, undo)
	}
	if err == nil {
		err = d.judge(ctx)
		if ctx.Err() == nil { // also beside sick services: slots run commands all the same
			err = errors.Join(err, d.selfTest(ctx))
		}
	}
	// On every way out: a marker that stays would pin the release (case R-04).
	err = errors.Join(err, d.Store.unmark(d.m.ID), d.Store.remove(staging(d.m.ID)), d.Store.dropHalves())
	if err != nil {
		return d.loud(ctx, err)
	}
	return nil
}

// loud says what runs now. A run that was interrupted keeps its own code.
func (d *Deploy) loud(ctx context.Context, err error) error {
	code := report.ExitState
	if ctx.Err() != nil {
		code = report.CodeOf(err)
	}
	if d.before == d.m.ID {
		return report.Coded(code, "current names release %s as before, but: %w", d.m.ID, err)
	}
	back := "no release was live before it"
	if d.before != "" {
		back = fmt.Sprintf("the release before it (%s) was not put back; to go back: agentworks-deploy deploy %s --release <its folder or tar>", d.before, d.Preflight.Host.Name)
	} else if d.was != "none" {
		back = fmt.Sprintf("what was live before it (%s) was not put back", d.was)
	}
	return report.Coded(code, "current names release %s now, but: %w; %s", d.m.ID, err, back)
}

func (d *Deploy) clean() error {
	left, err := d.Store.leftovers(d.m.ID)
	if err != nil || len(left) == 0 {
		return err
	}
	if err := d.Store.clean(left); err != nil {
		return err
	}
	d.row(report.Changed, "leftovers", "removed %s of an earlier run that was cut off", strings.Join(left, ", "))
	return nil
}

// prepare makes the release whole and reachable, before anything names it.
func (d *Deploy) prepare(ctx context.Context, payload *Payload) error {
	dir := d.Store.dir(d.m.ID)
	if d.look.Present {
		d.row(report.OK, "release", "%s is there and every byte is right", d.m.ID)
	} else {
		dir = d.Store.dir(staging(d.m.ID))
		err := d.Steps.Do(ctx, "transfer", transferTimeout, func(ctx context.Context) error {
			return d.Store.stage(ctx, d.m, d.manifest, d.look, payload)
		})
		if err != nil {
			return err
		}
		d.row(report.Changed, "release", "%s: %s; every byte verified", d.m.ID, d.sizes())
	}
	changed, err := fileModes(dir, d.m, d.Store.UID)
	if err != nil {
		return err
	}
	var foreign []string
	if d.Store.Slots {
		var did []string
		did, foreign, err = traverse(d.Store.Layout.Releases(), dir, d.Store.UID)
		if err != nil {
			return err
		}
		changed = append(changed, did...)
	}
	switch {
	case len(foreign) > 0:
		d.row(report.Warn, "modes", "left alone, another account owns it: %s", strings.Join(foreign, ", "))
	case len(changed) > 0 && d.look.Present:
		d.row(report.Changed, "modes", "%s", strings.Join(changed, ", "))
	case d.Store.Slots:
		d.row(report.OK, "modes", "slots reach the launcher and list nothing")
	}
	return nil
}

// activate records the deploy, then places, switches and restarts.
func (d *Deploy) activate(ctx context.Context) error {
	if d.settled() {
		d.row(report.OK, "current", "names %s already", d.m.ID)
		return nil
	}
	err := d.Steps.Do(ctx, "switch", switchTimeout, func(context.Context) error { return d.swap() })
	if err != nil {
		return err
	}
	last, _ := d.history.last()
	if d.before == d.m.ID {
		d.row(report.Changed, "current", "names %s as before, to be judged anew; deploy number %d of this host", d.m.ID, last.Seq)
	} else {
		d.row(report.Changed, "current", "releases/%s, was %s; deploy number %d of this host", d.m.ID, d.was, last.Seq)
	}
	return nil
}

// swap is short, and does not stop half-way for a caller that is gone. The log
// comes first: a run that is cut off anywhere behind it is known to be
// unfinished, and the next one restarts the services.
func (d *Deploy) swap() error {
	old := *d.history
	d.history.begin(d.m.ID, Digest(d.manifest), d.Store.Now())
	if err := writeHistory(d.Store.Layout.App, d.history); err != nil {
		return err
	}
	placed := false
	if !d.look.Present {
		var err error
		placed, err = d.Store.place(d.m.ID)
		d.switched = placed && d.before == d.m.ID
		if err != nil {
			return errors.Join(err, d.unswap(placed, &old))
		}
	}
	if d.before == d.m.ID {
		d.switched = true
		return nil
	}
	var err error
	if d.switched, err = d.Store.switchTo(d.m.ID); err != nil {
		return errors.Join(err, d.unswap(placed, &old))
	}
	return nil
}

// unswap takes a failed swap back, unless current names the release already.
func (d *Deploy) unswap(placed bool, old *history) error {
	if d.switched {
		return nil
	}
	var err error
	if placed {
		err = d.Store.unplace(d.m.ID, d.look.Broken != nil)
	}
	return errors.Join(err, writeHistory(d.Store.Layout.App, old))
}
