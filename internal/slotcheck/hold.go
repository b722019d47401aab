package slotcheck

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/sandbox/shell"
)

// held is a command of a slot that stands still until it is let go, so that the
// kernel can be asked about it from outside. It needs no signal, which an
// account could not send to another's process: it writes more than a pipe
// takes, and nobody reads on.
type held struct {
	PID   int
	Lines []string // what the script printed before it stood still
	out   *os.File
	ended chan struct{}
}

// holdScript runs script, tells its process and stands still. The pid stays the
// same through exec, and so does everything that the launcher did to it.
func holdScript(mark, script string) string {
	return "echo " + mark + " start\n" + script + "\necho " + mark + " held $$\nexec head -c 1000000 /dev/zero\n"
}

// hold starts script as a slot's command. Either the command is held, or there
// is the outcome of one that did not come that far.
func (a *audit) hold(ctx context.Context, s subject, env []string, script string) (*held, outcome, error) {
	if a.launcherErr != nil {
		return nil, outcome{}, errNoLauncher
	}
	if a.silent.of(s.Slot) {
		return nil, outcome{}, errSilent
	}
	ctx, cancel := context.WithTimeoutCause(ctx, probeDeadline, errNoAnswer)
	mark := rand.Text()
	dir := a.probeDir(s)
	call, err := a.chain.Wrap(shell.Command{Slot: s.Slot, Dir: dir, Read: []string{dir}, Env: env,
		Argv: []string{"/bin/sh", "-c", holdScript(mark, script)}})
	if err != nil {
		cancel()
		return nil, outcome{}, errRefused{err}
	}
	read, write, err := os.Pipe()
	if err != nil {
		cancel()
		return nil, outcome{}, err
	}
	said, err := unix.MemfdCreate("stderr", unix.MFD_CLOEXEC)
	if err != nil {
		cancel()
		return nil, outcome{}, errors.Join(err, read.Close(), write.Close())
	}
	stderr := os.NewFile(uintptr(said), "stderr")
	h := &held{out: read, ended: make(chan struct{})}
	var exit int
	var runErr error
	go func() {
		defer close(h.ended)
		defer cancel()
		exit, runErr = call.Run(ctx, write, stderr)
		write.Close()
		if runErr != nil { // a lost command keeps its end of the pipe open
			_ = read.SetReadDeadline(time.Now())
		}
	}()
	if h.wait(mark) {
		go func() { <-h.ended; stderr.Close() }()
		return h, outcome{}, nil
	}
	h.release()
	defer stderr.Close()
	a.silent.note(s.Slot, runErr)
	text, err := io.ReadAll(io.NewSectionReader(stderr, 0, maxOutput))
	return nil, outcome{Exit: exit, Stdout: strings.Join(h.Lines, "\n"), Stderr: string(text)}, errors.Join(runErr, err)
}

// wait reads up to the line that tells the pid.
func (h *held) wait(mark string) bool {
	lines := bufio.NewScanner(io.LimitReader(h.out, maxOutput))
	started := false
	for lines.Scan() {
		line := lines.Text()
		if pid, ok := strings.CutPrefix(line, mark+" held "); ok && started {
			h.PID, _ = strconv.Atoi(pid)
			return h.PID > 0
		}
		if line == mark+" start" {
			started = true
			continue
		}
		if started {
			h.Lines = append(h.Lines, line)
		}
	}
	return false
}

// release lets the command run to its end and waits for that.
func (h *held) release() {
	_, _ = io.Copy(io.Discard, h.out) // ends with the command, or with the deadline's stop
	<-h.ended
	h.out.Close()
}

// status reads /proc/<pid>/status of a held command, from outside.
func (a *audit) status(pid int) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(a.sys.Proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			fields[key] = strings.TrimSpace(value)
		}
	}
	return fields, nil
}
