package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

func (a *app) hosts() *cobra.Command {
	return a.group(doc{
		use:     "hosts",
		short:   "List, show and check the host files",
		example: program + " hosts list",
	}, a.hostsList(), a.hostsShow(), a.hostsValidate(), a.hostsSchema())
}

func (a *app) hostsList() *cobra.Command {
	return a.command(doc{
		use:     "list",
		short:   "List the hosts, and say which folder they come from",
		codes:   localCodes,
		example: program + " hosts list",
	}, func(context.Context, []string) (int, error) {
		dir, rule, err := hosts.Dir(a.hostsDir, a.environ, a.self)
		if err != nil {
			return 0, err
		}
		names, err := hosts.Names(dir)
		if err != nil {
			return 0, err
		}
		table := report.NewTable("HOST", "PRODUCT", "TIER", "SLOTS", "ADMIN", "SERVICE").Fit(a.style().Width)
		code := report.ExitOK
		for _, name := range names {
			l, err := a.host(name)
			if err != nil {
				fmt.Fprintf(a.stderr, "%s: %s\n", program, report.Escape(err.Error()))
				code = report.CodeOf(err)
				continue
			}
			h := l.Host
			table.Add(name, h.Product, h.Tier, h.Slots.Mode, h.Channels.Admin.String(), h.Channels.ForService().String())
		}
		if err := table.Write(a.stdout); err != nil {
			return 0, err
		}
		fmt.Fprintf(a.stdout, "\nhost files: %s (%s)\n", dir, rule)
		a.overlooked(dir)
		return code, nil
	})
}

func (a *app) hostsShow() *cobra.Command {
	return a.command(doc{
		use:     "show <host>",
		short:   "Show a host's effective values",
		codes:   localCodes,
		example: program + " hosts show lab",
	}, func(_ context.Context, args []string) (int, error) {
		l, err := a.host(args[0])
		if err != nil {
			return 0, err
		}
		table := report.NewTable().Fit(a.style().Width)
		for _, v := range l.Explain() {
			table.Add(v.Key, v.Value)
		}
		return 0, table.Write(a.stdout)
	})
}

func (a *app) hostsValidate() *cobra.Command {
	return a.command(doc{
		use:   "validate [host…]",
		short: "Check host files: all of them, or those that are named",
		long: `Check host files and say every fault with file, line and key: what no verb would
take, and what forbids a host to go live as far as its file tells (docs/admission.md).
The environment and --set count, as they do for a verb. A WARN is told and changes
no exit code: an account that has another name where root is wanted, for example.`,
		codes:   localCodes,
		example: program + " hosts validate",
	}, func(_ context.Context, args []string) (int, error) {
		names := args
		if len(names) == 0 {
			dir, _, err := hosts.Dir(a.hostsDir, a.environ, a.self)
			if err != nil {
				return 0, err
			}
			if names, err = hosts.Names(dir); err != nil {
				return 0, err
			}
			a.overlooked(dir)
			if len(names) == 0 {
				return 0, report.Coded(report.ExitUsage, "no host files in %s", filepath.Clean(dir))
			}
		}
		var faults []error
		for _, name := range names {
			l, err := a.host(name)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			if err := l.Admit(); err != nil {
				faults = append(faults, err)
			} else {
				fmt.Fprintf(a.stdout, "OK    %s\n", name)
			}
			for _, w := range l.Warnings() {
				fmt.Fprintf(a.stdout, "WARN  %s\n", report.Escape(w.Error()))
			}
		}
		return a.faults(faults, len(names))
	})
}

func (a *app) hostsSchema() *cobra.Command {
	return a.command(doc{
		use:   "schema",
		short: "Print the JSON Schema of host files, for editors",
		long: `Print the JSON Schema of host files. An editor with a YAML language server completes
and checks a file that begins with the line

  # yaml-language-server: $schema=schema.json

as those in hosts/ do. What only loading can judge stays with hosts validate.`,
		codes:   "  0    the schema was printed\n  2    wrong words\n",
		noHost:  true,
		example: program + " hosts schema >hosts/schema.json",
	}, func(context.Context, []string) (int, error) {
		text, err := hosts.Schema()
		if err != nil {
			return 0, fmt.Errorf("make the schema: %w", err)
		}
		_, err = a.stdout.Write(text)
		return 0, err
	})
}

// overlooked tells of files that are no host files for their name alone.
func (a *app) overlooked(dir string) {
	for _, file := range hosts.Overlooked(dir) {
		fmt.Fprintf(a.stderr, "%s: %s is not read: a host file's name ends in .yaml\n", program, report.Escape(filepath.Join(dir, file)))
	}
}

// faults prints every problem but the last, which becomes the command's error
// line when it is the only one.
func (a *app) faults(faults []error, files int) (int, error) {
	var problems []string
	for _, err := range faults {
		var many *hosts.Problems
		if !errors.As(err, &many) {
			problems = append(problems, err.Error())
			continue
		}
		for _, p := range many.List {
			problems = append(problems, p.Error())
		}
	}
	for _, p := range problems {
		fmt.Fprintf(a.stdout, "FAIL  %s\n", report.Escape(p))
	}
	if len(faults) == 0 {
		return 0, nil
	}
	return 0, report.Coded(report.ExitUsage, "%d of %d host files are not right", len(faults), files)
}
