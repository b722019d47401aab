package cli

import (
	"fmt"
	"slices"
	"strings"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

// tellFixes says on standard error where the fixes of printed rows are to be run:
// the form of a fix is fixed and has no room for it.
func (a *app) tellFixes(host *hosts.Host, rows []report.Row) {
	if text := placeOfFixes(host, rows); text != "" {
		fmt.Fprintln(a.stderr, text)
	}
}

// placeOfFixes is that line; empty where no row has a fix to run.
func placeOfFixes(host *hosts.Host, rows []report.Row) string {
	onHost := false
	var here []string // first words of the operator's
	for _, row := range rows {
		switch {
		case row.Fix == nil || row.Fix.Command() == "":
		case row.Fix.Where == report.OnHost:
			onHost = true
		case !slices.Contains(here, row.Fix.Argv[0]):
			here = append(here, row.Fix.Argv[0])
		}
	}
	const sit = "where you sit"
	switch {
	case !onHost && here == nil:
		return ""
	case !onHost:
		return "fixes are run " + sit
	}
	text := "fixes are run as root on " + host.Name
	switch admin := host.Channels.Admin; {
	case admin.Lab != nil:
		text = fmt.Sprintf("fixes are run as root in the lab: %s lab exec --name %s -- <fix>", program, admin.Lab.Name)
	case admin.Local != nil:
		text = "fixes are run as root on this machine"
	}
	if here != nil {
		slices.Sort(here)
		text += fmt.Sprintf("; those that begin with %s, %s", report.Escape(strings.Join(here, " or ")), sit)
	}
	return text
}
