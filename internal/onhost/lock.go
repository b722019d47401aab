package onhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"time"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// lockRoot takes the product's lock in /run, which only root can write to. It
// waits at most wait for a holder to end.
func lockRoot(ctx context.Context, layout hosts.Layout, verb string, wait time.Duration) (func() error, error) {
	file := layout.RootLock()
	if err := os.MkdirAll(path.Dir(file), 0o755); err != nil {
		return nil, report.Coded(report.ExitUnfinished, "make the folder of the lock: %w", err)
	}
	lock, err := safefs.Acquire(ctx, file, safefs.Holder{PID: os.Getpid(), Verb: verb, Since: time.Now()}, wait)
	var held *safefs.LockedError
	if errors.As(err, &held) {
		return nil, report.Coded(report.ExitLocked, "another root verb is at work on %s: %w", layout.Product, err)
	}
	if err != nil {
		return nil, report.Coded(report.ExitUnfinished, "take the lock of root verbs: %w", err)
	}
	return lock.Release, nil
}

// serviceID asks the account database as every program on the host sees it.
func serviceID(ctx context.Context, account string) (int, error) {
	out, err := accounts.Load(ctx, accounts.HostGetent, account)
	if err != nil {
		return 0, report.Coded(report.ExitUnfinished, "look up the service account %s: %w", account, err)
	}
	user, ok := out.User(account)
	if !ok {
		return 0, report.Coded(report.ExitState, "not provisioned: there is no account %s", account)
	}
	return strconv.Atoi(fmt.Sprint(user.UID))
}
