package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/fleet"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

// many holds the flags of a command that works on several hosts.
type many struct {
	all      bool
	parallel int
	canary   bool
}

func (m *many) addFlags(cmd *cobra.Command, parallel int) {
	cmd.Flags().BoolVar(&m.all, "all", false, "every host of the hosts folder; labs only where there is nothing else")
	cmd.Flags().IntVar(&m.parallel, "max-parallel", parallel, "hosts at once")
	cmd.Flags().BoolVar(&m.canary, "canary", false, "the first host goes alone, and its failure ends the run")
}

// checkParallel refuses a number of hosts that is none.
func (m *many) checkParallel() error {
	if m.parallel < 1 {
		return report.Coded(report.ExitUsage, "--max-parallel %d: at least 1", m.parallel)
	}
	return nil
}

// given refuses, with the usage, words that name no host or too many things.
func (m *many) given(_ *cobra.Command, args []string) error {
	if m.all == (len(args) > 0) {
		return errNoHosts
	}
	return nil
}

var errNoHosts = errors.New("name the hosts, or say --all")

// way is how the hosts are taken.
func (m *many) way() fleet.Many { return fleet.Many{Parallel: m.parallel, Canary: m.canary} }

// load loads all hosts that are meant, so that wrong words are found before any
// of them is asked.
func (m *many) load(a *app, names []string) ([]*hosts.Host, error) {
	if err := m.checkParallel(); err != nil {
		return nil, err
	}
	if err := m.given(nil, names); err != nil {
		return nil, &report.CodedError{Code: report.ExitUsage, Err: err}
	}
	if m.all {
		dir, _, err := hosts.Dir(a.hostsDir, a.environ, a.self)
		if err != nil {
			return nil, err
		}
		if names, err = hosts.Names(dir); err != nil {
			return nil, err
		}
	}
	var list, labs []*hosts.Host
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			return nil, report.Coded(report.ExitUsage, "host %s is named twice", name)
		}
		seen[name] = true
		loaded, err := a.host(name)
		if err != nil {
			return nil, err
		}
		if m.all && isLab(&loaded.Host) {
			labs = append(labs, &loaded.Host)
			continue
		}
		list = append(list, &loaded.Host)
	}
	if len(list) == 0 {
		list = labs
	}
	if len(list) == 0 {
		return nil, report.Coded(report.ExitUsage, "there are no host files")
	}
	return list, nil
}

// eachHost runs a verb on the hosts, prints what show makes of each result in
// their order, and at the end the matrix of what they answered.
func eachHost[T any](ctx context.Context, a *app, m *many, list []*hosts.Host, run func(context.Context, *fleet.Fleet, *hosts.Host) (T, int, error), show func(fleet.Result[T]) []report.Report) (report.Fleet, error) {
	progress := a.progress()
	defer progress.Close()
	f, err := a.fleet(progress)
	if err != nil {
		return report.Fleet{}, err
	}
	all := report.Fleet{V: 1, Reports: []report.Report{}}
	all.Exit = fleet.Each(ctx, m.way(), list, func(ctx context.Context, host *hosts.Host) (T, int, error) {
		own := f.On(host)
		defer own.Close()
		return run(ctx, own, host)
	}, func(r fleet.Result[T]) {
		progress.Close() // what a half left of a line; more lines may follow
		if r.Skipped {
			fmt.Fprintf(a.stderr, "%s: %s was not asked\n", program, r.Host.Name)
			return
		}
		all.Reports = append(all.Reports, show(r)...)
	})
	return all, nil
}

// unanswered is the report of a host that had no rows to give.
func unanswered(host, level string, exit int, err error) report.Report {
	why := "no answer"
	if err != nil {
		why = err.Error()
	}
	r := report.New(host, level, "", []report.Row{{State: report.Error, Check: "host", Detail: why}}, false)
	r.Exit = exit
	return r
}
