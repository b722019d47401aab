package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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

// Asked says which release a deploy is about: the one whose manifest begins the
// payload or, with ID, one that lies on the host, for which nothing is sent.
type Asked struct {
	ID       string
	Manifest string // the hex sha256 that the payload's manifest was announced with
	// Unnamed says that the build gave the payload's release no id of its own: a
	// release on the host with the same content is then the one that is meant.
	Unnamed bool
}

// Answer is what a deploy's host side tells besides rows. Release is the one that
// the deploy turned out to be about. Missing are the digests that have to be sent.
type Answer struct {
	Release string   `json:"release"`
	Before  string   `json:"before,omitempty"` // the release that was live
	Present bool     `json:"present"`
	Missing []string `json:"missing,omitempty"`
	Bytes   int64    `json:"bytes,omitempty"` // of Missing
	Back    string   `json:"back,omitempty"`  // what was live before, and the command that goes back to it
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

	asked    Asked
	manifest []byte
	m        *Manifest
	look     *look
	history  *history
	before   string // the release that current named when the run began
	was      string // the same for messages: also what is no release, or "none"
	rows     []report.Row
	tested   []report.Row
	switched bool
	judged   bool // the services were, well or not
	proven   bool // the self-test came to its end
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

// Run deploys the release that is asked for. The rows are true also beside an
// error. Without an error and without a FAIL the release is live and healthy.
func (d *Deploy) Run(ctx context.Context, want Want, asked Asked, payload *Payload) (rows []report.Row, answer Answer, err error) {
	defer func() { rows = d.rows }()
	d.asked = asked
	ready := false
	if err = d.find(payload); err == nil {
		answer.Release = d.m.ID
		ready, err = d.ready(ctx)
	}
	if err != nil || !ready {
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
	answer = Answer{Release: d.m.ID, Before: d.before, Present: d.look.Present, Missing: d.look.Missing, Bytes: d.look.Bytes, Back: d.back()}
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
		if d.asked.Unnamed {
			if err := d.meant(); err != nil {
				return err
			}
		}
		if d.look, err = d.Store.look(ctx, d.m, d.manifest); err != nil {
			return err
		}
		switch {
		case d.asked.ID != "":
			return d.whole()
		case d.look.Present:
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
