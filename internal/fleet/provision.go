package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/report"
)

// Provision makes host a slot host, or (plan) says what that would change. The
// slotctl that is installed is the one beside the operator's own program.
func (f *Fleet) Provision(ctx context.Context, host *hosts.Host, plan bool) (onhost.Envelope, error) {
	slotctl, err := os.ReadFile(filepath.Join(filepath.Dir(f.Program.Path), "slotctl"))
	if err != nil {
		return onhost.Envelope{}, report.Coded(report.ExitUnfinished, "read the slotctl beside this program (make build makes it): %w", err)
	}
	args := onhost.ProvisionArgs{Slotctl: fmt.Sprintf("%x", sha256.Sum256(slotctl)), Half: f.Program.SHA256()}
	var body io.Reader
	if !plan {
		body = bytes.NewReader(slotctl)
	}
	return f.call(ctx, host, call{verb: "provision", args: args, plan: plan, body: body})
}
