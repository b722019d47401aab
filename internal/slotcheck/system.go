package slotcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"agentworks-deploy/internal/accounts"
)

// System is what checks see of the host they run on, so that tests can put a
// scratch tree in its place.
type System struct {
	Proc string // "/proc"
	// Accounts loads the account database, and names it may not list.
	Accounts func(ctx context.Context, names ...string) (*accounts.Database, error)
	// Unit asks the service manager for one service. A manager that is not
	// there is no error: nothing of its runs.
	Unit func(ctx context.Context, name string) (Unit, error)
}

// ThisHost is the host the process runs on; manager is the host file's
// release.manager, "user" or "system".
func ThisHost(manager string) System {
	return System{
		Proc: "/proc",
		Accounts: func(ctx context.Context, names ...string) (*accounts.Database, error) {
			return accounts.Load(ctx, accounts.HostGetent, names...)
		},
		Unit: func(ctx context.Context, name string) (Unit, error) { return askManager(ctx, manager, name) },
	}
}

// toolDeadline bounds a question to one of the host's own tools.
const toolDeadline = 30 * time.Second

// tool runs one of the host's programs, by absolute path, with a fixed, small environment and
// without standard input.
func tool(ctx context.Context, env []string, argv ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, toolDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}, env...)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("%s: %w", argv[0], ctx.Err())
	}
	return out.String(), strings.TrimSpace(errs.String()), err
}

// askManager asks systemd. XDG_RUNTIME_DIR is ours, since a channel's
// environment may have none or another account's.
func askManager(ctx context.Context, manager, unit string) (Unit, error) {
	argv := []string{"/usr/bin/systemctl", "show", "--property=MainPID,ActiveState", unit}
	var env []string
	if manager != "system" {
		argv = []string{"/usr/bin/systemctl", "--user", "show", "--property=MainPID,ActiveState", unit}
		env = []string{"XDG_RUNTIME_DIR=/run/user/" + strconv.Itoa(os.Getuid())}
	}
	out, errs, err := tool(ctx, env, argv...)
	if err != nil {
		if strings.HasPrefix(errs, "Failed to connect to bus: No such file or directory") {
			return Unit{State: "no service manager of this account runs"}, nil
		}
		if _, exited := errors.AsType[*exec.ExitError](err); exited && errs != "" {
			return Unit{}, errors.New(errs)
		}
		return Unit{}, err
	}
	return parseUnit(out)
}

// parseUnit reads the answer of systemctl show.
func parseUnit(out string) (Unit, error) {
	u, known := Unit{}, false
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "MainPID":
			pid, err := strconv.Atoi(value)
			if err != nil || pid < 0 {
				return Unit{}, fmt.Errorf("systemctl show: MainPID=%q", value)
			}
			u.PID, known = pid, true
		case "ActiveState":
			u.State = value
		}
	}
	if !known {
		return Unit{}, errors.New("systemctl show: no MainPID in its answer")
	}
	return u, nil
}
