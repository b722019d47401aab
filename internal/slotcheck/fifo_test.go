package slotcheck_test

import (
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
)

// The service account owns these files, and may put there what never ends.
func TestFilesThatNeverEndHoldNoAuditUp(t *testing.T) {
	o := reference(t)
	for file, check := range map[string]string{
		"/srv/vs/data/docs/config/users.json": "accounts-without-slot",
		"/srv/vs/.env":                        "settings", // read while the service does not run
	} {
		o.sh(t, `systemctl --user -M vs@ stop vs-workspace.service`)
		o.sh(t, "mv "+file+" "+file+".kept && mkfifo "+file+" && chown vs: "+file)
		r := o.audit(t, "--level", "full")
		o.sh(t, "rm "+file+" && mv "+file+".kept "+file)
		o.sh(t, `systemctl --user -M vs@ start vs-workspace.service`)
		var found bool
		for _, row := range r.Rows {
			found = found || row.Check == check && row.State == report.Error && strings.Contains(row.Detail, "not a regular file")
		}
		if !found || r.Exit == report.ExitOK {
			t.Errorf("%s: exit %d, no ERROR of %s:\n%s", file, r.Exit, check, text(r))
		}
	}
}
