package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"agentworks-deploy/internal/sandbox/grants"
)

// exitSudo is what sudo ends with when it starts nothing.
const exitSudo = 1

// stopTime is how long a stopped chain has: slotctl kills after 2 s.
const stopTime = 4 * time.Second

// Call is one command ready to go through the chain. It can be run once.
type Call struct {
	slot    string
	argv    []string
	request []byte
	// Dropped lists the grants that the slot does not get.
	Dropped []grants.Dropped
}

// Output is what a captured call left behind.
type Output struct {
	// Exit is the code of the command, of slotctl, of the launcher or of sudo.
	Exit           int
	Stdout, Stderr string
	// Truncated says that one of the two was longer than the limit.
	Truncated bool
}

// ErrLost says that a stopped call did not end: sudo and what it runs belong to
// other accounts, and the chain did not end them either.
var ErrLost = errors.New("the command did not end when it was stopped")

// SudoError says that sudo did not start slotctl, so that the exit code and the
// words are sudo's and no command ran.
type SudoError struct {
	Slot string
	Said string // the first line of sudo
}

func (e *SudoError) Error() string {
	return fmt.Sprintf("sudo starts nothing as %s (%s)", e.Slot, e.Said)
}

// Run runs the call and copies the command's output; the command has no input.
// What background jobs of the command write is copied for stopTime more. When
// ctx ends, the chain is stopped. The error is set when nothing is known of the
// command's end, and is ctx's own when it was stopped; a *SudoError says that no
// command ran.
func (c *Call) Run(ctx context.Context, stdout, stderr io.Writer) (exit int, err error) {
	h, err := newHandover(c.request)
	if err != nil {
		return 0, err
	}
	defer h.close()
	held := &gate{to: stderr, open: h.begun}
	exit, err = c.run(ctx, h, stdout, held)
	if err == nil && exit == exitSudo && !h.taken() {
		return 0, &SudoError{Slot: c.slot, Said: held.firstLine()}
	}
	held.release()
	return exit, err
}

// Capture runs the call and keeps at most limit bytes of each output.
func (c *Call) Capture(ctx context.Context, limit int) (Output, error) {
	stdout, stderr := &head{limit: limit}, &head{limit: limit}
	h, err := newHandover(c.request)
	if err != nil {
		return Output{}, err
	}
	defer h.close()
	exit, err := c.run(ctx, h, stdout, stderr)
	o, lost := stdout.text()
	e, more := stderr.text()
	return Output{Exit: exit, Stdout: o, Stderr: e, Truncated: lost || more}, err
}

func (c *Call) run(ctx context.Context, h *handover, stdout, stderr io.Writer) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, context.Cause(ctx)
	}
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Stdin = h.reader
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// No LANG: the words of sudo are read by programs.
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	// sudo does not pass on a signal that comes from its own process group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = stopTime // for a background job that keeps the output open
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start the chain: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return exitOf(cmd, err)
	case <-ctx.Done():
	}
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		// May be refused: sudo can be another account's by now. The wait tells.
		_ = cmd.Process.Signal(sig)
		select {
		case <-ended:
			return 0, context.Cause(ctx)
		case <-time.After(stopTime):
		}
	}
	return 0, errors.Join(context.Cause(ctx), ErrLost)
}

func exitOf(cmd *exec.Cmd, err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
	case !errors.As(err, &exit):
		return 0, fmt.Errorf("wait for the chain: %w", err)
	}
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// head keeps the first limit bytes written to it. It may be read while an
// abandoned command still writes.
type head struct {
	mu    sync.Mutex
	limit int
	kept  []byte
	lost  bool
}

func (t *head) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(p), t.limit-len(t.kept))
	t.kept = append(t.kept, p[:n]...)
	t.lost = t.lost || n < len(p)
	return len(p), nil
}

func (t *head) text() (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept), t.lost
}
