package slotcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/slots"
)

const (
	tmux = "/usr/bin/tmux"
	// tmuxEnds bounds how long a server that was told to end may take.
	tmuxEnds = 2 * time.Second
	// Its one session lasts as long as this process, so that a killed audit
	// leaves no server.
	tmuxSession = `while [ -d /proc/%d ]; do sleep 0.2; done`
	// The socket stays behind its server, and the folder's time is the service's
	// to put back. A killed audit's server needs a moment to end.
	tmuxJanitor = `[ -n "$told" ] || sleep 1
rm -f -- "$1"; touch -m -d "$3" -- "$2"`
)

// checkTmuxSocket starts the slot's tmux server, which runs unconfined, and
// tries to reach it from the sandbox: whoever can, is out of it (case L-07). It
// is asked of the test slot alone, where no user's session can be disturbed.
func checkTmuxSocket(ctx context.Context, a *audit, s subject) []report.Row {
	if !s.test() {
		return nil
	}
	sock := a.config.TmuxSocket(s.Slot)
	if _, err := os.Stat(tmux); err != nil || !a.config.AllowsProgram(tmux) {
		return skip("tmux is not there, or slotctl does not allow it")
	}
	if _, err := os.Lstat(sock); !errors.Is(err, fs.ErrNotExist) {
		return skip("the slot has a tmux socket already, which is not ours to touch")
	}
	stop, err := a.startTmux(ctx, s, sock)
	defer stop()
	if no, ok := errors.AsType[errStopped](err); ok {
		return a.nothingProven(no.outcome, nil, s)
	}
	if err != nil {
		return unknown(a.hide.words(err.Error()))
	}
	return a.tryDenied(ctx, s, `tmux -S "$1" list-sessions >/dev/null`, aim{show: "the slot's live tmux server"}, sock)
}

// startTmux starts a server and proves from outside that it lives. Stop ends it
// and takes every trace away; it may be called whatever happened.
func (a *audit) startTmux(ctx context.Context, s subject, sock string) (stop func(), err error) {
	dir := filepath.Dir(sock)
	var before unix.Stat_t
	if err := unix.Stat(dir, &before); err != nil {
		return func() {}, fmt.Errorf("look at %s: %w", dir, err)
	}
	modified := fmt.Sprintf("@%d.%09d", before.Mtim.Sec, before.Mtim.Nsec)
	j, err := hireJanitor(tmuxJanitor, sock, dir, modified)
	if err != nil {
		return func() {}, err
	}
	server := 0
	stop = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tmuxEnds)
		defer cancel()
		// A server that does not hear this ends with its session.
		_, _ = a.tmux(ctx, s, sock, "kill-server")
		waitForEnd(server, tmuxEnds)
		j.clean()
	}
	if _, err := a.tmux(ctx, s, sock, "new-session", "-d", "-s", "slotcheck", fmt.Sprintf(tmuxSession, os.Getpid())); err != nil {
		return stop, fmt.Errorf("start a tmux server: %w", err)
	}
	out, err := a.tmux(ctx, s, sock, "display-message", "-p", "#{session_name} #{pid}")
	if err != nil {
		return stop, fmt.Errorf("reach the tmux server from outside: %w", err)
	}
	name, pid, _ := strings.Cut(strings.TrimSpace(out), " ")
	if server, err = strconv.Atoi(pid); err != nil || name != "slotcheck" {
		return stop, errors.New("reach the tmux server from outside: it gives no answer")
	}
	return stop, nil
}

// errStopped says that the chain did not get as far as tmux.
type errStopped struct{ outcome }

func (e errStopped) Error() string { return trueError(e.Stderr) }

// tmux runs one tmux command as the slot, unconfined, as the platform does.
func (a *audit) tmux(ctx context.Context, s subject, sock string, words ...string) (string, error) {
	o, err := a.request(ctx, s.Slot, slots.Request{
		Argv: append([]string{tmux, "-S", sock}, words...),
		Cwd:  a.probeDir(s),
		Env:  []string{"PATH=/usr/bin:/bin", "SHELL=/bin/sh", "TERM=screen", "LC_ALL=C.UTF-8", "HOME=" + s.Account.Home},
	})
	if err != nil {
		return "", err
	}
	if o.stage() != stageCommand {
		return "", errStopped{o}
	}
	if o.Exit != 0 {
		return "", fmt.Errorf("exit %d: %s", o.Exit, trueError(o.Stderr))
	}
	return o.Stdout, nil
}

// waitForEnd waits until a process of any account is gone.
func waitForEnd(pid int, limit time.Duration) {
	if pid <= 0 {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for until := time.Now().Add(limit); ; {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if !errors.Is(err, unix.EINTR) || n > 0 {
			return
		}
	}
}
