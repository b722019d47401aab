package fleet

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// Slotcheck audits host; the secrets' admission stands at the end. Rows found before a failure come with its error, and
// the report's exit code is then the error's.
func (f *Fleet) Slotcheck(ctx context.Context, host *hosts.Host, args onhost.SlotcheckArgs, strict bool) (report.Report, error) {
	e, err := f.call(ctx, host, call{verb: "slotcheck", args: args})
	var data onhost.SlotcheckData
	if len(e.Data) > 0 {
		if bad := json.Unmarshal(e.Data, &data); bad != nil && err == nil {
			err = report.Coded(report.ExitUnfinished, "read the answer of slotcheck: %w", bad)
		}
	}
	if err == nil {
		e.Rows = append(e.Rows, f.secrets(ctx, host, data)...)
	}
	r := report.New(host.Name, string(args.Level), data.Release, e.Rows, strict)
	if err != nil {
		r.Exit = report.CodeOf(err)
	}
	return r, err
}

// SlotcheckAll audits host, or all the instances that its channel leads to, and
// returns a report for each with the worst of their exit codes.
func (f *Fleet) SlotcheckAll(ctx context.Context, host *hosts.Host, args onhost.SlotcheckArgs, strict bool) ([]report.Report, int, error) {
	ch, err := f.channel(host, remote.Service)
	if err != nil {
		return nil, report.CodeOf(err), err
	}
	many, ok := ch.(remote.Many)
	if !ok || !many.Many() {
		r, err := f.Slotcheck(ctx, host, args, strict)
		if len(r.Rows) == 0 && err != nil {
			return nil, r.Exit, err
		}
		return []report.Report{r}, r.Exit, err
	}
	req, err := call{verb: "slotcheck", args: args}.request(host)
	if err != nil {
		return nil, report.CodeOf(err), err
	}
	var reports []report.Report
	var codes []int
	err = f.Program.CallAll(ctx, many, req, f.Log, func(a onhost.Answer) {
		rows := a.Envelope.Rows
		if a.Err != nil {
			rows = append(rows, report.Row{State: report.Error, Check: "host", Detail: a.Err.Error()})
		}
		var data onhost.SlotcheckData
		_ = json.Unmarshal(a.Envelope.Data, &data) // without it the release is not named
		if a.Err == nil {
			rows = append(rows, f.secrets(ctx, host, data)...)
		}
		r := report.New(host.Name+"/"+a.Instance, string(args.Level), data.Release, rows, strict)
		if a.Err != nil {
			r.Exit = report.CodeOf(a.Err)
		}
		reports, codes = append(reports, r), append(codes, r.Exit)
	})
	if err != nil {
		codes = append(codes, report.CodeOf(err))
	}
	slices.SortFunc(reports, func(a, b report.Report) int { return strings.Compare(a.Host, b.Host) })
	return reports, report.Worst(codes...), err
}
