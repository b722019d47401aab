package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/fleet"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/slotcheck"
)

// slotcheckOptions are the flags of slotcheck.
type slotcheckOptions struct {
	audit
	many
	level, testSlot    string
	local              bool
	app, docs, product string
}

func (a *app) slotcheck() *cobra.Command {
	var o slotcheckOptions
	cmd := a.command(doc{
		use:   "slotcheck (<host>… | --all | --local --app A --docs D --product P)",
		short: "Prove on a host that slot commands start and stay confined",
		long: `Run commands as each assigned slot and as one test slot through sudo, slotctl and
the launcher, as the platform's shell tool does, and say for each failure what
makes it pass. Nothing on the host is changed. With --local the host is the server
you are on; run it there as root or as the service account. Several hosts are
audited at once; a matrix of checks and hosts stands at the end.`,
		codes: `  0    no check failed (a warning changes that only with --strict)
  1    a check failed
  2    wrong words: flag, slot, host file, unknown host
  3    a check could not run, or the audit could not finish
  130  interrupted
`,
		example: program + " slotcheck lab\n" + program + " slotcheck rts --level full --format json\n" + program + " slotcheck --all",
		args:    cobra.ArbitraryArgs,
	}, func(ctx context.Context, args []string) (int, error) { return a.runSlotcheck(ctx, args, o) })
	f := cmd.Flags()
	f.StringVar(&o.level, "level", string(slotcheck.Basic), "basic: commands start; full: and are confined")
	f.StringVar(&o.testSlot, "test-slot", "", "the slot that runs probes on nobody's data (default: the highest free one)")
	o.audit.addFlags(cmd)
	o.many.addFlags(cmd, 4)
	f.BoolVar(&o.local, "local", false, "audit the server this runs on, without a host file")
	f.StringVar(&o.app, "app", "", "with --local: the app folder (default /srv/<product>)")
	f.StringVar(&o.docs, "docs", "", "with --local: the docs root (default <app>/data/docs)")
	f.StringVar(&o.product, "product", "", "with --local: the service account's name")
	return cmd
}

func (a *app) runSlotcheck(ctx context.Context, args []string, o slotcheckOptions) (int, error) {
	if err := errors.Join(o.check(), o.checkParallel()); err != nil {
		return 0, &report.CodedError{Code: report.ExitUsage, Err: err}
	}
	if l := slotcheck.Level(o.level); l != slotcheck.Basic && l != slotcheck.Full {
		return 0, report.Coded(report.ExitUsage, "%q is no level: basic, full", o.level)
	}
	if o.all || len(args) > 1 {
		return a.slotcheckMany(ctx, args, o)
	}
	loaded, err := a.audited(args, o)
	if err != nil {
		return 0, err
	}
	if err := o.checkSlot(&loaded.Host); err != nil {
		return 0, err
	}
	if loaded.Host.Channels.ForService().SSM.Many() {
		return a.slotcheckMany(ctx, args, o)
	}
	r, err := withFleet(a, func(f *fleet.Fleet) (report.Report, error) {
		return f.Slotcheck(ctx, &loaded.Host, onhost.SlotcheckArgs{Level: slotcheck.Level(o.level), Local: o.local, TestSlot: o.testSlot}, o.strict)
	})
	if err != nil && len(r.Rows) == 0 {
		return r.Exit, err
	}
	if bad := o.print(a, &loaded.Host, r); err == nil {
		err = bad
	}
	return r.Exit, err
}

// checkSlot refuses a test slot that host cannot have, before anything runs there.
func (o *slotcheckOptions) checkSlot(host *hosts.Host) error {
	layout := host.Layout()
	if o.testSlot == "" {
		return nil
	}
	for n := 1; n <= layout.Count; n++ {
		if layout.Slot(n) == o.testSlot {
			return nil
		}
	}
	return report.Coded(report.ExitUsage, "--test-slot %q is no slot of %s: %s to %s", o.testSlot, host.Name, layout.Slot(1), layout.Slot(layout.Count))
}

// slotcheckMany audits several hosts, and all instances of those that have many.
func (a *app) slotcheckMany(ctx context.Context, args []string, o slotcheckOptions) (int, error) {
	if o.local || o.app != "" || o.docs != "" || o.product != "" {
		return 0, report.Coded(report.ExitUsage, "--local, --app, --docs and --product are for one host")
	}
	list, err := o.load(a, args)
	if err != nil {
		return 0, err
	}
	for _, host := range list {
		if err := o.checkSlot(host); err != nil {
			return 0, err
		}
	}
	ask := onhost.SlotcheckArgs{Level: slotcheck.Level(o.level), TestSlot: o.testSlot}
	var bad error
	all, err := eachHost(ctx, a, &o.many, list, func(ctx context.Context, f *fleet.Fleet, host *hosts.Host) ([]report.Report, int, error) {
		return f.SlotcheckAll(ctx, host, ask, o.strict)
	}, func(r fleet.Result[[]report.Report]) []report.Report {
		if len(r.Value) == 0 {
			r.Value = []report.Report{unanswered(r.Host.Name, o.level, r.Exit, r.Err)}
		} else if r.Err != nil {
			fmt.Fprintf(a.stderr, "%s: %s: %s\n", program, r.Host.Name, report.Escape(r.Err.Error()))
			r.Value = unfinished(r.Value, o.level, r)
		}
		if o.format == "table" && len(r.Value) == 1 {
			bad = errors.Join(bad, a.printOne(r.Host, r.Value[0], o))
		}
		return r.Value
	})
	if err != nil || o.silent(all.Exit) {
		return all.Exit, errors.Join(err, bad)
	}
	return all.Exit, errors.Join(bad, all.Write(a.stdout, o.format, a.style()))
}

// unfinished adds to what a host answered why that is not all, so that no format
// shows a good host beside an exit code that says otherwise.
func unfinished(reports []report.Report, level string, r fleet.Result[[]report.Report]) []report.Report {
	if len(reports) > 1 {
		return append(reports, unanswered(r.Host.Name, level, r.Exit, r.Err))
	}
	one := reports[0]
	one.Rows = append(one.Rows, report.Row{State: report.Error, Check: "host", Detail: r.Err.Error()})
	one.Summary = report.Count(one.Rows)
	return []report.Report{one}
}

// printOne prints the report of one of several hosts.
func (a *app) printOne(host *hosts.Host, r report.Report, o slotcheckOptions) error {
	if o.silent(r.Exit) {
		return nil
	}
	fmt.Fprintf(a.stdout, "== %s ==\n", r.Host)
	if err := o.print(a, host, r); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.stdout)
	return err
}

// audited is the host that is meant: the one of a host file, or this server.
func (a *app) audited(args []string, o slotcheckOptions) (*hosts.Loaded, error) {
	told := []hosts.Setting{
		{Key: "product", Value: o.product, Flag: "--product"},
		{Key: "paths.app", Value: o.app, Flag: "--app"},
		{Key: "paths.docs", Value: o.docs, Flag: "--docs"},
	}
	told = slices.DeleteFunc(told, func(s hosts.Setting) bool { return s.Value == "" })
	if !o.local {
		if len(told) > 0 {
			return nil, report.Coded(report.ExitUsage, "%s goes with --local", told[0].Flag)
		}
		if len(args) != 1 {
			return nil, a.wrong(report.ExitUsage, "<host> is missing; --local audits the server you are on, --all every host")
		}
		return a.host(args[0])
	}
	if len(args) != 0 {
		return nil, report.Coded(report.ExitUsage, "--local and the host %q: one of them", args[0])
	}
	if o.product == "" {
		return nil, report.Coded(report.ExitUsage, "--local needs --product, the service account's name")
	}
	settings, err := a.settings()
	if err != nil {
		return nil, err
	}
	return hosts.FromSettings(slotcheck.NoHost, a.environ, append(settings, told...))
}
