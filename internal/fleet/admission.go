package fleet

import (
	"context"
	"encoding/json"
	"fmt"

	"agentworks-deploy/internal/admission"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/report"
)

// Admission scans the secrets that the manifests of host select. An error means
// that the scan itself could not run; the report's exit code is then its.
func (f *Fleet) Admission(ctx context.Context, host *hosts.Host, strict bool) (report.Report, error) {
	rows, err := f.admission(ctx, host)
	r := report.New(host.Name, "", "", rows, strict)
	if err != nil {
		r.Exit = report.CodeOf(err)
	}
	return r, err
}

// admission has the host read its manifests and stores, and asks Vault from the
// side that the host file names: only names cross.
func (f *Fleet) admission(ctx context.Context, host *hosts.Host) ([]report.Row, error) {
	e, err := f.call(ctx, host, call{verb: "admission"})
	if err != nil || host.Vault.From != "operator" {
		return e.Rows, err
	}
	facts := &admission.Facts{}
	if err := json.Unmarshal(e.Data, facts); err != nil {
		return nil, report.Coded(report.ExitUnfinished, "read the answer of admission: %w", err)
	}
	return f.judge(ctx, host, facts), nil
}

func (f *Fleet) judge(ctx context.Context, host *hosts.Host, facts *admission.Facts) []report.Row {
	return admission.Judge(facts, admission.AskVault(ctx, host.Vault, f.Getenv, facts), host.Vault)
}

// secrets are the rows of a self-test's scan that are not among its own.
func (f *Fleet) secrets(ctx context.Context, host *hosts.Host, data onhost.SlotcheckData) []report.Row {
	switch {
	case !data.Scanned:
		return []report.Row{{State: report.Info, Check: "secret-admission", Detail: "not checked: the half on the host is an older build"}}
	case data.Facts != nil:
		return f.judge(ctx, host, data.Facts)
	}
	return nil
}

// admissionSection is the scan at the end of a deploy, which it never makes
// fail: one that cannot run is a note.
func (f *Fleet) admissionSection(ctx context.Context, host *hosts.Host) []report.Row {
	rows, err := f.admission(ctx, host)
	if err != nil {
		rows = append(rows, report.Row{State: report.Info, Check: "secret-admission", Detail: fmt.Sprintf("not checked: %v", err)})
	}
	return rows
}

// admit refuses a release or a host that may not go live before anything is
// changed, with all reasons at once: those of the host file, of the release, and
// of the host as far as it can be asked already. The deploy on the host looks
// again, and nothing that could not be asked here passes there.
func (p *pushed) admit(ctx context.Context) (bool, error) {
	rows := admission.Static(p.host)
	var retired []report.Row
	if p.m != nil { // one that lies on the host is searched there
		var err error
		if retired, err = admission.Retired(ctx, p.host, p.dir); err != nil {
			return false, report.Coded(report.ExitUnfinished, "search the release for retired tools: %w", err)
		}
	}
	if p.ask.Provision || len(rows)+len(retired) > 0 {
		e, err := p.f.call(ctx, p.host, call{verb: "go-live", args: onhost.GoLiveArgs{Provisioning: p.ask.Provision}})
		if err == nil {
			rows = e.Rows // the reasons of the host file are among them
		}
	}
	rows = append(rows, retired...)
	if report.Count(rows).Failed == 0 {
		return true, ctx.Err()
	}
	p.done.Steps, p.done.Exit = rows, report.Verdict(rows, false)
	return false, nil
}
