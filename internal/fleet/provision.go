package fleet

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// Provision makes host a slot host, or (plan) says what that would change. The
// slotctl that is installed is the one beside the operator's own program.
func (f *Fleet) Provision(ctx context.Context, host *hosts.Host, plan bool) (onhost.Envelope, error) {
	slotctl, err := onhost.NewProgram(filepath.Join(filepath.Dir(f.Program.Path), "slotctl"), "")
	if err != nil {
		return onhost.Envelope{}, report.Coded(report.ExitUnfinished, "read the slotctl beside this program (make build makes it): %w", err)
	}
	ch, err := f.channel(host, remote.Admin)
	if err != nil {
		return onhost.Envelope{}, err
	}
	c := call{verb: "provision", args: onhost.ProvisionArgs{Slotctl: slotctl.SHA256(), Half: f.Program.SHA256()}, plan: plan}
	if _, narrow := ch.(remote.Narrow); narrow {
		return f.provisionNarrow(ctx, host, ch, c, slotctl)
	}
	if !plan {
		file, err := os.Open(slotctl.Path)
		if err != nil {
			return onhost.Envelope{}, report.Coded(report.ExitUnfinished, "read the slotctl beside this program: %w", err)
		}
		defer file.Close()
		c.body = io.LimitReader(file, slotctl.Size())
	}
	return f.call(ctx, host, c)
}

// provisionNarrow has root find the programs on the host, and brings those that
// are not there.
func (f *Fleet) provisionNarrow(ctx context.Context, host *hosts.Host, ch remote.Channel, c call, slotctl *onhost.Program) (onhost.Envelope, error) {
	files := []onhost.File{{Name: onhost.HalfFile, Program: f.Program}}
	if !c.plan {
		files = append(files, onhost.File{Name: onhost.SlotctlFile, Program: slotctl})
	}
	c.args = onhost.ProvisionArgs{Slotctl: slotctl.SHA256(), Half: f.Program.SHA256(), Delivered: true}
	req, err := c.request(host)
	if err != nil {
		return onhost.Envelope{}, err
	}
	d := &delivery{f: f, host: host, admin: ch}
	defer d.done(ctx)
	e, err := f.Program.CallWith(ctx, ch, req, files, d.bring, f.Log)
	return planned(e, c, ch), err
}
