package slotcheck

import (
	"context"

	"agentworks-deploy/internal/report"
)

// shadowFile holds the host's password hashes. It lies in /etc, which every
// command may read, so that its mode alone keeps it closed.
const shadowFile = "/etc/shadow"

// checkShadow proves that a confined command cannot read the password hashes.
func checkShadow(ctx context.Context, a *audit, s subject) []report.Row {
	d := denial{"deny-shadow", there(func(*audit) string { return shadowFile }), tryRead}
	rows := d.run(ctx, a, s)
	for i := range rows {
		if rows[i].State == report.Fail && rows[i].Cause == a.leaks() {
			rows[i].Cause, rows[i].Fix = shadowFile+" is readable by everybody", hostFix("chmod", "0640", shadowFile)
		}
	}
	return rows
}
