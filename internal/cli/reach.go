package cli

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/fleet"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/report"
)

// fleet is what reaches hosts for this run; log gets the halves' progress
// lines. This program's own file is the half that is sent where it is missing.
func (a *app) fleet(log io.Writer) (*fleet.Fleet, error) {
	program, err := onhost.NewProgram(a.self, version())
	if err != nil {
		return nil, err
	}
	f := &fleet.Fleet{Program: program, Log: log, Getenv: a.getenv}
	a.closers = append(a.closers, f.Close)
	return f, nil
}

// withFleet answers with what verb does; the fleet's progress stands on standard
// error until then.
func withFleet[T any](a *app, verb func(*fleet.Fleet) (T, error)) (answer T, err error) {
	progress := a.progress()
	defer progress.Close()
	f, err := a.fleet(progress)
	if err != nil {
		return answer, err
	}
	return verb(f)
}

// withHost is withFleet for the host of that name.
func withHost[T any](a *app, name string, verb func(*fleet.Fleet, *hosts.Host) (T, error)) (answer T, err error) {
	loaded, err := a.host(name)
	if err != nil {
		return answer, err
	}
	return withFleet(a, func(f *fleet.Fleet) (T, error) { return verb(f, &loaded.Host) })
}

// change runs the verb of that name, which changes a host, and prints its steps.
func (a *app) change(host, name string, verb func(*fleet.Fleet, *hosts.Host) (onhost.Envelope, error)) (int, error) {
	e, err := withHost(a, host, verb)
	var bad error
	if len(e.Rows) > 0 {
		bad = report.WriteSteps(a.stdout, name, e.Rows, a.style())
	}
	return e.Exit, errors.Join(err, bad)
}

// planFlag adds --plan.
func planFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("plan", false, "say what would change and change nothing")
}

// progress prints what a command is at on standard error; close it before the
// results are printed.
func (a *app) progress() *report.Progress {
	return report.NewProgress(a.stderr)
}

// style is how results look on standard output.
func (a *app) style() report.Style { return report.Style{Colour: a.colour(a.stdout)} }

// audit holds the flags of a command whose answer is a report.
type audit struct {
	format string
	strict bool
	quiet  bool
}

func (o *audit) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.format, "format", report.Formats()[0], "form of the answer: table, json, junit, tap, nagios, html")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "a WARN fails as well")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print nothing when all is right")
}

// check refuses wrong words before a host is asked.
func (o *audit) check() error { return report.CheckFormat(o.format) }

// print prints r, unless it is a good one and the run a quiet one, and returns
// its exit code.
func (o *audit) print(a *app, r report.Report) (int, error) {
	if o.quiet && r.Exit == report.ExitOK {
		return r.Exit, nil
	}
	return r.Exit, r.Write(a.stdout, o.format, a.style())
}
