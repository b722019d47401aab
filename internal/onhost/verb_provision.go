package onhost

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"agentworks-deploy/internal/provision"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// ProvisionArgs are the sha256 sums (hex) of the operator's programs: slotctl,
// which is the body (a plan sends none), and this half itself.
type ProvisionArgs struct {
	Slotctl string `json:"slotctl"`
	Half    string `json:"half"`
}

// slotctlLimit bounds the body: the program has a few MiB.
const slotctlLimit = 64 << 20

func verbProvision() Verb {
	return Verb{Role: remote.Admin, Lock: true, Upload: true, Run: runProvision}
}

func runProvision(ctx context.Context, s *Session) ([]report.Row, error) {
	var args ProvisionArgs
	if err := s.Args(&args); err != nil {
		return nil, err
	}
	// Until all of it is here the caller may still be lost: nothing is begun before.
	slotctl, err := io.ReadAll(io.LimitReader(s.Body, slotctlLimit))
	if err != nil {
		return nil, report.Coded(report.ExitUnfinished, "receive slotctl: %w", err)
	}
	return provision.Run(ctx, provision.ThisHost(), provision.Request{
		Host: s.Request.Host,
		Plan: s.Request.Plan,
		Slotctl: provision.Program{SHA256: args.Slotctl, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(slotctl)), nil
		}},
		Half: provision.Program{SHA256: args.Half, Open: openSelf},
		Log:  s.Log,
	})
}

// openSelf opens the running program, whose file may have no name any more.
func openSelf() (io.ReadCloser, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("open this program: %w", err)
	}
	return f, nil
}
