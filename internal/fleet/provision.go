package fleet

import (
	"context"
	"os"
	"path/filepath"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/report"
)

// Provision makes host a slot host, or (plan) says what that would change. The
// slotctl that is installed is the one beside the operator's own program.
func (f *Fleet) Provision(ctx context.Context, host *hosts.Host, plan bool) (onhost.Envelope, error) {
	slotctl, err := onhost.NewFile(filepath.Join(filepath.Dir(f.Program.Path), "slotctl"))
	if err != nil {
		return onhost.Envelope{}, report.Coded(report.ExitUnfinished, "the slotctl beside this program (make build makes it): %w", err)
	}
	c := call{verb: "provision", args: onhost.ProvisionArgs{Slotctl: slotctl.SHA256(), Half: f.Program.SHA256()}, plan: plan}
	if !plan {
		file, err := os.Open(slotctl.Path)
		if err != nil {
			return onhost.Envelope{}, report.Coded(report.ExitUnfinished, "read the slotctl beside this program: %w", err)
		}
		defer file.Close()
		c.body, c.what = file, "slotctl"
	}
	return f.call(ctx, host, c)
}
