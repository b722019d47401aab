package slotcheck

import (
	"context"
	"strings"

	"agentworks-deploy/internal/report"
)

// checkReleasesListable warns: whoever can list releases sees when what was
// deployed, and needs only to pass through (case S-15).
func checkReleasesListable(_ context.Context, a *audit, _ subject) []report.Row {
	acc, err := readAccess(a.layout.Releases())
	if err == nil && acc.Mode&0o004 != 0 {
		return warn(a.layout.Releases() + " is world-readable; 0711 is enough")
	}
	return nil
}

// checkACLPresent warns: an ACL on the way to the launcher decides what mode
// bits no longer show (case S-14).
func checkACLPresent(_ context.Context, a *audit, _ subject) []report.Row {
	var with []string
	for _, p := range way(a.launcher) {
		if acc, err := readAccess(p); err == nil && len(acc.ACL) > 0 {
			with = append(with, p)
		}
	}
	if len(with) == 0 {
		return nil
	}
	return warn("ACL entries on the way to the launcher decide who passes: " + strings.Join(with, ", "))
}

// way is every step from / down to file, file included.
func way(file string) []string {
	var steps []string
	for i, c := range file {
		if c == '/' {
			steps = append(steps, file[:max(i, 1)])
		}
	}
	if file == "" {
		return nil
	}
	return append(steps, file)
}
