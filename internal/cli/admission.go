package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/fleet"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

func (a *app) admission() *cobra.Command {
	return a.group(doc{
		use:     "admission",
		short:   "Say which secrets do not exist or are not granted, by name",
		example: program + " admission scan rts",
	}, a.admissionScan())
}

func (a *app) admissionScan() *cobra.Command {
	var o audit
	cmd := a.command(doc{
		use:   "scan <host>",
		short: "Hold the secrets that manifests select against where they can exist",
		long: `Read the manifests and stores of a host, ask Vault and the gateway, and warn for
each selected secret that exists nowhere or that the Platform group was not
granted. Only names are looked at: no value is read from Vault, and none is printed.
What could not be checked is said, and is no verdict. See docs/admission.md.`,
		codes: `  0    the scan ran; warnings change that only with --strict
  1    there are warnings, with --strict
  2    wrong words: flag, host file, unknown host
  3    the scan itself could not run
  130  interrupted
`,
		example: program + " admission scan rts\n" + program + " admission scan rts --strict --format json",
	}, func(ctx context.Context, args []string) (int, error) {
		if o.format != "table" && o.format != "json" {
			return 0, report.Coded(report.ExitUsage, "%q is no format: table, json", o.format)
		}
		host, r, err := withHost(a, args[0], func(f *fleet.Fleet, host *hosts.Host) (report.Report, error) { return f.Admission(ctx, host, o.strict) })
		switch {
		case err != nil && len(r.Rows) == 0:
			return r.Exit, err
		case o.silent(r.Exit):
			return r.Exit, err
		case o.format == "json":
			return r.Exit, errors.Join(err, r.Write(a.stdout, o.format, a.style()))
		}
		err = errors.Join(err, report.WriteNotes(a.stdout, "secret admission", r.Rows, a.style()))
		a.tellFixes(host, r.Rows)
		return r.Exit, err
	})
	cmd.Flags().StringVar(&o.format, "format", "table", "form of the answer: table, json")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "a WARN fails as well")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print no table when all is right; a document is always printed")
	return cmd
}
