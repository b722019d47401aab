package remote

import (
	"context"
	"os"
	"os/exec"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
)

// local is the machine this program runs on.
type local struct {
	role    Role
	account string
	getent  accounts.Getent
}

// newLocal reaches this machine as root or, from root, as the service account
// with that account's groups.
func newLocal(role Role, product string) (Channel, error) {
	if role == Admin {
		if os.Geteuid() != 0 {
			return nil, report.Coded(report.ExitUsage, "not root: the admin channel of this machine needs root: run this with sudo")
		}
		return &local{role: role, account: "root"}, nil
	}
	return &local{role: role, account: product, getent: accounts.HostGetent}, nil
}

func (l *local) Run(ctx context.Context, c Cmd) (int, error) {
	argv := c.Argv
	if l.role == Service {
		if err := l.reach(ctx, os.Geteuid()); err != nil {
			return 0, err
		}
		if os.Geteuid() == 0 {
			argv = append(asAccount(l.account), argv...)
		}
	}
	return process(ctx, argv, c, func(cmd *exec.Cmd) error {
		cmd.Dir = "/"
		if err := cmd.Start(); err != nil {
			return report.Coded(report.ExitUnfinished, "%s: start %s: %w", l, cmd.Path, err)
		}
		return nil
	})
}

// reach refuses before anything runs where there is no service account, or where
// uid may not work as it.
func (l *local) reach(ctx context.Context, uid int) error {
	known, err := accounts.Load(ctx, l.getent, l.account)
	if err != nil {
		return report.Coded(report.ExitUnfinished, "look for the account %s: %w", l.account, err)
	}
	account, ok := known.User(l.account)
	switch {
	case !ok:
		return report.Coded(report.ExitUsage, "no account %s on this machine: the product is the name of its service account", l.account)
	case uid != 0 && uid != int(account.UID):
		return report.Coded(report.ExitUsage, "not root and not %s: run this as one of them, for example with sudo", l.account)
	}
	return nil
}

func (l *local) String() string { return "this machine as " + l.account }

func (l *local) Close() error { return nil }

// asAccount are the words that make root an account, with its groups and an
// environment of its own, before a program (case B55).
func asAccount(name string) []string {
	return []string{"/usr/bin/setpriv", "--reuid=" + name, "--regid=" + name, "--init-groups", "--reset-env", "--"}
}
