package onhost

import (
	"context"
	"os"
	"strings"

	"agentworks-deploy/internal/admission"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/units"
)

// GoLiveArgs are the arguments of go-live.
type GoLiveArgs struct {
	// Provisioning says that the host is provisioned next; see admission.Site.
	Provisioning bool `json:"provisioning,omitempty"`
}

// verbGoLive says why the host may not go live. It uploads nothing, since it
// changes nothing.
func verbGoLive() Verb {
	return Verb{Role: remote.Service, Run: func(ctx context.Context, s *Session) ([]report.Row, error) {
		var args GoLiveArgs
		if err := s.Args(&args); err != nil {
			return nil, err
		}
		at := site(&s.Request.Host)
		at.Provisioning = args.Provisioning
		return at.Check(ctx), nil
	}}
}

// site is the machine this process runs on, as the service account.
func site(h *hosts.Host) *admission.Site {
	return &admission.Site{
		Host: h, Proc: "/proc", UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()),
		Unit:  units.NewManager(h.Release.Manager, os.Geteuid()).Running,
		Fence: admission.Namespaces(h.Layout()),
	}
}

// verbAdmission reads manifests and stores. Where Vault is the operator's to ask
// it answers with admission.Facts as data, and with no rows.
func verbAdmission() Verb { return Verb{Role: remote.Service, Run: runAdmission} }

func runAdmission(ctx context.Context, s *Session) ([]report.Row, error) {
	facts, rows, err := scanSecrets(ctx, &s.Request.Host)
	if facts != nil {
		s.Data = facts
	}
	return rows, err
}

// scanSecrets answers with rows or, where the operator's side asks Vault, with
// the facts to ask about. An error means that the scan could not run.
func scanSecrets(ctx context.Context, h *hosts.Host) (*admission.Facts, []report.Row, error) {
	l := h.Layout()
	ask := units.NewManager(h.Release.Manager, os.Geteuid()).Running
	told, err := units.Environment(ctx, ask, "/proc", l.Product+"-agent.service", l.EnvFile())
	if err != nil {
		return nil, nil, report.Coded(report.ExitUnfinished, "%w", err)
	}
	env := admission.Environment{Lookup: told.Lookup}
	for _, a := range told.Assignments {
		env.Names = append(env.Names, a.Name)
	}
	docs := l.Docs
	if d := told.Lookup("WORKSPACE_DOCS_PATH"); strings.HasPrefix(d, "/") {
		docs = d
	}
	facts, err := admission.Collect(ctx, docs, env)
	if err != nil {
		return nil, nil, err
	}
	if told.Note != "" {
		facts.Rows = append(facts.Rows, report.Row{State: report.Info, Check: "secret-admission", Detail: told.Note})
	}
	if h.Vault.From == "operator" {
		return facts, nil, nil
	}
	return nil, admission.Judge(facts, admission.AskVault(ctx, h.Vault, told.Lookup, facts), h.Vault), nil
}
