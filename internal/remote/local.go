package remote

import (
	"context"
	"os"
	"os/exec"

	"agentworks-deploy/internal/report"
)

// local is the machine this program runs on.
type local struct {
	account string
	prefix  []string // what changes the account, before the program
}

// newLocal reaches this machine as root or, from root, as the service account
// with that account's groups.
func newLocal(role Role, product string) (Channel, error) {
	root := os.Geteuid() == 0
	if role == Admin {
		if !root {
			return nil, report.Coded(report.ExitUsage, "not root: the admin channel of this machine needs root")
		}
		return &local{account: "root"}, nil
	}
	l := &local{account: product}
	if root {
		l.prefix = asAccount(product)
	}
	return l, nil
}

func (l *local) Run(ctx context.Context, c Cmd) (int, error) {
	return process(ctx, append(l.prefix, c.Argv...), c, func(cmd *exec.Cmd) error {
		cmd.Dir = "/"
		if err := cmd.Start(); err != nil {
			return report.Coded(report.ExitUnfinished, "%s: start %s: %w", l, cmd.Path, err)
		}
		return nil
	})
}

func (l *local) String() string { return "this machine as " + l.account }

func (l *local) Close() error { return nil }

// asAccount are the words that make root an account, with its groups and an
// environment of its own, before a program (case B55).
func asAccount(name string) []string {
	return []string{"/usr/bin/setpriv", "--reuid=" + name, "--regid=" + name, "--init-groups", "--reset-env", "--"}
}
