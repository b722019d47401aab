package release

import (
	"context"
	"errors"
	"strings"

	"agentworks-deploy/internal/report"
)

// do brings the release live. Whatever fails before the switch is undone.
func (d *Deploy) do(ctx context.Context, payload *Payload) error {
	if err := d.clean(); err != nil {
		return d.unswitched(ctx, err)
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
		return d.unswitched(ctx, errors.Join(err, undo))
	}
	if err == nil {
		err = d.judge(ctx)
		if ctx.Err() == nil { // also beside sick services: slots run commands all the same
			err = errors.Join(err, d.selfTest(ctx))
		}
		if err == nil && !d.proven {
			err = context.Cause(ctx)
		}
	}
	// On every way out: a marker that stays would pin the release (case R-04).
	err = errors.Join(err, d.Store.unmark(d.m.ID), d.Store.remove(staging(d.m.ID)), d.Store.dropHalves())
	if err != nil {
		return d.loud(ctx, err)
	}
	return nil
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
