package release

import (
	"context"
	"errors"
	"slices"
	"strings"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/units"
)

// judge restarts the services where the switch or their state asks for it, and
// records what became of them.
func (d *Deploy) judge(ctx context.Context) error {
	err := d.Steps.Do(ctx, "restart", restartTimeout, func(ctx context.Context) error {
		states, err := d.Manager.States(ctx, d.Health.Units)
		if err != nil {
			return err
		}
		down := slices.ContainsFunc(states, func(u units.UnitState) bool { return !u.Running() })
		if !d.switched && !down {
			d.row(report.OK, "services", "run already: %s", strings.Join(d.Health.Units, ", "))
			return errNothingToDo
		}
		d.Health.Since = d.Store.Now()
		if err := d.Manager.Restart(ctx, d.Health.Units); err != nil {
			return err
		}
		d.row(report.Changed, "services", "restarted %s", strings.Join(d.Health.Units, ", "))
		return nil
	})
	if err == nil {
		err = d.Steps.Do(ctx, "health", d.Health.Deadline+healthSlack, d.Health.judge)
	}
	if ctx.Err() != nil {
		return err // unjudged: the log keeps saying so
	}
	end := outcomeLive
	if err != nil {
		end = outcomeUnhealthy
		d.row(report.Fail, "health", "%v", err)
		d.rows[len(d.rows)-1].Fix = &report.Fix{Where: report.Operator, Note: "mend what the services' journal names, and deploy again"}
		d.Health.journals(ctx, journalLines)
	} else {
		d.row(report.OK, "health", "%d services steady, %d health documents good", len(d.Health.Units), len(d.Health.URLs))
	}
	d.judged = true
	return errors.Join(err, d.record(end))
}

// selfTest takes the audit's rows over; what they say is the verdict's business.
func (d *Deploy) selfTest(ctx context.Context) error {
	return d.Steps.Do(ctx, "self-test", selfTestTimeout, func(ctx context.Context) (err error) {
		d.tested, err = d.SelfTest(ctx)
		d.proven = err == nil
		return err
	})
}

func (d *Deploy) record(o outcome) error {
	if last, ok := d.history.last(); ok && last.Outcome == o {
		return nil
	}
	d.history.end(o)
	return writeHistory(d.Store.Layout.App, d.history)
}
