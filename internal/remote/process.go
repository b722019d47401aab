package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"agentworks-deploy/internal/report"
)

// patience is how long a program may take to end once its standard input is
// closed; the on-host half promises 5 s. It also bounds the wait for streams
// that a child of the program still holds open.
const patience = 6 * time.Second

// process runs cmd as the near end of a channel: start starts it, c's streams
// are its own. When ctx ends, standard input is closed, which tells the program
// that its caller is gone; it is killed when that does not end it.
func process(ctx context.Context, argv []string, c Cmd, start func(*exec.Cmd) error) (int, error) {
	ended, end := context.WithCancel(ctx)
	defer end()
	cmd := exec.CommandContext(ended, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	// A terminal's Ctrl-C goes to this program, which passes it on its own way.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = patience
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	cmd.Cancel = func() error { return stdin.Close() }
	if err := start(cmd); err != nil {
		stdin.Close()
		return 0, err
	}
	// Wait does not wait for this copy: c.Stdin may stay open for as long as
	// the answer is outstanding.
	go func() {
		if c.Stdin != nil {
			_, _ = io.Copy(stdin, c.Stdin) // a program that reads no more ends it
		}
		stdin.Close()
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 0, &LostError{context.Cause(ctx)}
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return cmd.ProcessState.ExitCode(), nil
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, report.Coded(report.ExitUnfinished, "run %s: %w", argv[0], err)
}
