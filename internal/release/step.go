package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"agentworks-deploy/internal/report"
)

// Steps runs the named steps of a deploy: each has a timeout, and while it runs
// a line on Log every Every says that it does and for how long (case B37).
type Steps struct {
	Log   io.Writer
	Every time.Duration
	Quiet bool // only the heartbeat is printed, not how steps end
	// Enter is told the step that begins; nil is allowed.
	Enter func(name string) error
}

// errNothingToDo ends a step that found its work done: no line is worth it.
var errNothingToDo = errors.New("nothing to do")

// Do runs f as the step name. F ends when its context does; an error then names
// the step and the time it took, with exit code 3.
func (s *Steps) Do(ctx context.Context, name string, timeout time.Duration, f func(ctx context.Context) error) error {
	start := time.Now()
	if s.Enter != nil {
		if err := s.Enter(name); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	quiet := make(chan struct{})
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		tick := time.NewTicker(s.Every)
		defer tick.Stop()
		for {
			select {
			case <-quiet:
				return
			case <-tick.C:
				fmt.Fprintf(s.Log, "%s: still at it after %s\n", name, elapsed(start))
			}
		}
	}()
	err := f(limited)
	close(quiet)
	<-beating
	switch {
	case err == errNothingToDo:
		return nil
	case err == nil:
		if !s.Quiet {
			fmt.Fprintf(s.Log, "%s: done in %s\n", name, elapsed(start))
		}
		return nil
	case ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded) && errors.Is(err, context.DeadlineExceeded):
		err = report.Coded(report.ExitUnfinished, "step %s: not done within %s", name, timeout)
	case ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		err = report.Coded(report.ExitUnfinished, "%s was cut off: %w", name, context.Cause(ctx))
	}
	fmt.Fprintf(s.Log, "%s: failed after %s\n", name, elapsed(start))
	return err
}

func elapsed(start time.Time) time.Duration { return time.Since(start).Round(10 * time.Millisecond) }
