package fleet

import (
	"context"
	"encoding/json"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
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
		e.Rows = append(e.Rows, f.admissionSection(ctx, host)...)
	}
	r := report.New(host.Name, string(args.Level), data.Release, e.Rows, strict)
	if err != nil {
		r.Exit = report.CodeOf(err)
	}
	return r, err
}
