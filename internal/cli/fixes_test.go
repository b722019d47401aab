package cli

import (
	"testing"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

func TestPlaceOfFixes(t *testing.T) {
	fix := func(where string, argv ...string) report.Row {
		return report.Row{State: report.Fail, Check: "x", Fix: &report.Fix{Where: where, Argv: argv}}
	}
	onHost, ours, vault := fix(report.OnHost, "chmod", "0711", "/srv"), fix(report.Operator, program, "provision", "rts"), fix(report.Operator, "vault", "kv", "put")
	ssh := hosts.Channels{Admin: hosts.Channel{SSH: &hosts.SSHChannel{Host: "alias"}}}
	lab := hosts.Channels{Admin: hosts.Channel{Lab: &hosts.LabChannel{Name: "demo"}}}
	here := hosts.Channels{Admin: hosts.Channel{Local: &hosts.LocalChannel{}}}
	for name, c := range map[string]struct {
		channels hosts.Channels
		rows     []report.Row
		want     string
	}{
		"no rows":          {ssh, nil, ""},
		"nothing to run":   {ssh, []report.Row{{State: report.Pass}, {State: report.Fail, Fix: &report.Fix{Where: report.OnHost, Note: "decide"}}, fix(report.OnHost, "rm", "a\x1b")}, ""},
		"on the host":      {ssh, []report.Row{onHost, onHost}, "fixes are run as root on rts"},
		"where one sits":   {ssh, []report.Row{ours}, "fixes are run where you sit"},
		"both":             {ssh, []report.Row{vault, onHost, ours}, "fixes are run as root on rts; those that begin with agentworks-deploy or vault, where you sit"},
		"a lab":            {lab, []report.Row{onHost, ours}, "fixes are run as root in the lab: agentworks-deploy lab exec --name demo -- <fix>; those that begin with agentworks-deploy, where you sit"},
		"on this machine":  {here, []report.Row{onHost}, "fixes are run as root on this machine"},
		"a lab's own verb": {lab, []report.Row{ours}, "fixes are run where you sit"},
	} {
		if got := placeOfFixes(&hosts.Host{Name: "rts", Channels: c.channels}, c.rows); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
