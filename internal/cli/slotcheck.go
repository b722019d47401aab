package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/slotcheck"
)

// slotcheckOptions are the flags of slotcheck.
type slotcheckOptions struct {
	audit
	level, testSlot    string
	local              bool
	app, docs, product string
}

func (a *app) slotcheck() *cobra.Command {
	var o slotcheckOptions
	cmd := a.command(doc{
		use:   "slotcheck (<host> | --local --app A --docs D --product P)",
		short: "Prove on a host that slot commands start and stay confined",
		long: `Run commands as each assigned slot and as one test slot through sudo, slotctl and
the launcher, as the platform's shell tool does, and say for each failure what
makes it pass. Nothing on the host is changed. With --local the host is the server
you are on; run it there as root or as the service account.`,
		codes: `  0    no check failed (a warning changes that only with --strict)
  1    a check failed
  2    wrong words: flag, slot, host file, unknown host
  3    a check could not run, or the audit could not finish
  130  interrupted
`,
		example: program + " slotcheck lab\n" + program + " slotcheck rts --level full --format json",
		args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) (int, error) { return a.runSlotcheck(ctx, args, o) })
	f := cmd.Flags()
	f.StringVar(&o.level, "level", string(slotcheck.Basic), "basic: commands start; full: and are confined")
	f.StringVar(&o.testSlot, "test-slot", "", "the slot that runs probes on nobody's data (default: the highest free one)")
	o.addFlags(cmd)
	f.BoolVar(&o.local, "local", false, "audit the server this runs on, without a host file")
	f.StringVar(&o.app, "app", "", "with --local: the app folder (default /srv/<product>)")
	f.StringVar(&o.docs, "docs", "", "with --local: the docs root (default <app>/data/docs)")
	f.StringVar(&o.product, "product", "", "with --local: the service account's name")
	return cmd
}

func (a *app) runSlotcheck(ctx context.Context, args []string, o slotcheckOptions) (int, error) {
	if err := o.check(); err != nil {
		return 0, err
	}
	if l := slotcheck.Level(o.level); l != slotcheck.Basic && l != slotcheck.Full {
		return 0, report.Coded(report.ExitUsage, "%q is no level: basic, full", o.level)
	}
	loaded, err := a.audited(args, o)
	if err != nil {
		return 0, err
	}
	progress := a.progress()
	f, err := a.fleet(progress)
	if err != nil {
		return 0, err
	}
	r, err := f.Slotcheck(ctx, &loaded.Host, onhost.SlotcheckArgs{Level: slotcheck.Level(o.level), Local: o.local, TestSlot: o.testSlot}, o.strict)
	progress.Close()
	if err != nil && len(r.Rows) == 0 {
		return r.Exit, err
	}
	_, bad := o.print(a, r)
	if err == nil {
		err = bad
	}
	return r.Exit, err
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
			return nil, report.Coded(report.ExitUsage, "slotcheck needs a host, or --local")
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
