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

// withHost is withFleet for the host of that name, which it loads.
func withHost[T any](a *app, name string, verb func(*fleet.Fleet, *hosts.Host) (T, error)) (host *hosts.Host, answer T, err error) {
	loaded, err := a.host(name)
	if err != nil {
		return nil, answer, err
	}
	answer, err = withFleet(a, func(f *fleet.Fleet) (T, error) { return verb(f, &loaded.Host) })
	return &loaded.Host, answer, err
}

// change runs a verb that changes the host of that name, and prints its steps.
func (a *app) change(name, verb string, run func(*fleet.Fleet, *hosts.Host) (onhost.Envelope, error)) (int, error) {
	host, e, err := withHost(a, name, run)
	var bad error
	if len(e.Rows) > 0 {
		bad = report.WriteSteps(a.stdout, verb, e.Rows, a.style())
		a.tellFixes(host, e.Rows)
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

// audit holds the flags of a command whose answer is a report.
type audit struct {
	format string
	strict bool
	quiet  bool
}

func (o *audit) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.format, "format", report.Formats()[0], "form of the answer: table, json, junit, tap, nagios, html")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "a WARN fails as well")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print no table when all is right; a document is always printed")
}

// check refuses wrong words before a host is asked.
func (o *audit) check() error { return report.CheckFormat(o.format) }

// silent says whether a run that ended with exit prints nothing. Who asked for a
// document gets one: its reader would take nothing for a broken run.
func (o *audit) silent(exit int) bool {
	return o.quiet && exit == report.ExitOK && o.format == report.Formats()[0]
}

// print prints r of host, unless it is a good one and the run a quiet one.
func (o *audit) print(a *app, host *hosts.Host, r report.Report) error {
	if o.silent(r.Exit) {
		return nil
	}
	err := r.Write(a.stdout, o.format, a.style())
	if o.format == report.Formats()[0] {
		a.tellFixes(host, r.Rows)
	}
	return err
}
