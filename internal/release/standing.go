package release

import (
	"context"
	"errors"
	"fmt"

	"agentworks-deploy/internal/report"
)

// Command is what a person types to make the release live on the host of that
// name; release is an id, a folder or a tar.
func Command(host, release string) string {
	return "agentworks-deploy deploy " + host + " --release " + report.Quote(release)
}

// back says what was live before this deploy and how to go back to it; "" where
// there was nothing else.
func (d *Deploy) back() string {
	earlier := d.before
	if earlier == d.m.ID { // this release was cut off, or judged, before
		earlier = d.history.before(d.m.ID)
	}
	switch {
	case earlier != "":
		if _, _, err := d.Store.stored(earlier); err != nil {
			return fmt.Sprintf("the release before it (%s) was not put back; to go back, deploy its folder or tar", earlier)
		}
		return fmt.Sprintf("the release before it (%s) was not put back; to go back: %s", earlier, Command(d.Preflight.Host.Name, earlier))
	case d.was == "none":
		return "no release was live before it"
	case d.before == "":
		return fmt.Sprintf("what was live before it (%s) was not put back", d.was)
	}
	return ""
}

// cut is err with who ended the run, where somebody did.
func cut(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// unswitched is err of a run that ended before the switch: nothing else runs now.
func (d *Deploy) unswitched(ctx context.Context, err error) error {
	runs := d.was + " is live as before"
	if d.was == "none" {
		runs = "no release is live, as before"
	}
	return fmt.Errorf("%w; nothing was switched, %s", cut(ctx, err), runs)
}

// loud is err of a run that ended behind the switch: it says what runs now, what
// is known of it, and what to type. A run that was interrupted keeps its own code.
func (d *Deploy) loud(ctx context.Context, err error) error {
	code, host := report.ExitState, d.Preflight.Host.Name
	if ctx.Err() != nil {
		code = report.CodeOf(err)
	}
	err = cut(ctx, err)
	if d.judged && d.proven {
		err = fmt.Errorf("release %s is live on %s, but: %w", d.m.ID, host, err)
	} else {
		err = fmt.Errorf("release %s is live on %s but unproven: %w; to go on: %s", d.m.ID, host, err, Command(host, d.m.ID))
	}
	if back := d.back(); back != "" {
		err = fmt.Errorf("%w; %s", err, back)
	}
	return &report.CodedError{Code: code, Err: err}
}
