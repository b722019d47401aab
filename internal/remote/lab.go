package remote

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"agentworks-deploy/internal/lab"
	"agentworks-deploy/internal/report"
)

// labChannel reaches a lab on this machine.
type labChannel struct {
	lab     *lab.Lab
	account string
}

func newLab(name, account string) (Channel, error) {
	if os.Geteuid() != 0 {
		return nil, report.Coded(report.ExitUsage, "not root: a lab needs root: run this with sudo")
	}
	l, err := lab.Find(name)
	if err != nil {
		return nil, &report.CodedError{Code: report.ExitUsage, Err: err}
	}
	return &labChannel{lab: l, account: account}, nil
}

func (l *labChannel) Run(ctx context.Context, c Cmd) (int, error) {
	return process(ctx, c.Argv, c, func(cmd *exec.Cmd) error {
		err := l.lab.Start(cmd, l.account)
		if errors.Is(err, lab.ErrNotUp) {
			return report.Coded(report.ExitUnfinished, "%w: agentworks-deploy lab up --name %s --reference", err, l.lab.Name)
		}
		if err != nil {
			return report.Coded(report.ExitUnfinished, "%s: start %s: %w", l, cmd.Path, err)
		}
		return nil
	})
}

func (l *labChannel) String() string { return "lab " + l.lab.Name + " as " + l.account }

func (l *labChannel) Close() error { return nil }
