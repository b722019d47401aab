package slotcheck

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/sandbox/shell"
	"agentworks-deploy/internal/units"
)

// System is what checks see of the host they run on, so that tests can put a
// scratch tree in its place.
type System struct {
	Proc   string // "/proc"
	Etc    string // "/etc", of which sudo's own files are looked at
	Sudo   string // the program that the chain begins with
	Getent accounts.Getent
	// Unit asks the service manager for one service. A manager that is not
	// there is no error: nothing of its runs.
	Unit func(ctx context.Context, name string) (units.Running, error)
}

// ThisHost is the host the process runs on; manager is the host file's
// release.manager, "user" or "system".
func ThisHost(manager string) System {
	return System{
		Proc:   "/proc",
		Etc:    "/etc",
		Sudo:   shell.Sudo,
		Getent: accounts.HostGetent,
		Unit: func(ctx context.Context, name string) (units.Running, error) {
			ctx, cancel := context.WithTimeout(ctx, toolDeadline)
			defer cancel()
			return units.NewManager(manager, os.Getuid()).Running(ctx, name)
		},
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
