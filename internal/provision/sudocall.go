package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"agentworks-deploy/internal/report"
)

// callDeadline ends a call through sudo; a usual one takes milliseconds.
const callDeadline = 20 * time.Second

// proveSudo makes one call through sudo, as the service: a rule that stands in
// its file is worth nothing where sudo does not read the file, where a later rule
// asks for a password, or where sudo itself is broken. Slotctl gets an empty
// request, which it refuses with 125.
func (r *run) proveSudo(ctx context.Context) error {
	sudo, ok := r.sys.find("sudo")
	if r.Plan || !ok {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callDeadline, fmt.Errorf("no end within %s", callDeadline))
	defer cancel()
	slot := r.l.Slot(1)
	cmd := exec.CommandContext(ctx, sudo, "-n", "-u", slot, r.l.Slotctl(), "exec")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: r.roster.service.UID, Gid: r.roster.service.GID, Groups: r.roster.groupIDs()}}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 125 {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("call sudo as %s: %w", r.l.Product, context.Cause(ctx))
	}
	next := fmt.Sprintf("sudo -l -U %s shows the rules that sudo reads, in their order; /etc/sudoers has to include /etc/sudoers.d", r.l.Product)
	sudo = strings.TrimPrefix(sudo, r.sys.Root)
	if st, err := r.lstat(sudo); err == nil && st.IsRegular() && (st.UID != 0 || st.Perm()&0o4000 == 0) {
		next = "chown root " + report.Quote(sudo) + "; chmod 4755 " + report.Quote(sudo)
	} else if strings.Contains(said.String(), "account validation failure") || strings.Contains(strings.ToLower(said.String()), "account expired") {
		next = "chage -E -1 " + r.l.Product + ", where the account has expired, as chage -l " + r.l.Product + " says"
	}
	r.refuse("%s is as asked, and still %s may not run commands as %s: %v: %s; next, on the host: %s", r.l.Sudoers(), r.l.Product, slot, err, oneLine(said.String()), next)
	return nil
}
