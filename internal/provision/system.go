package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// System is the machine that is provisioned, so that tests can put a scratch
// root in its place. Names of accounts come from Getent alone.
type System struct {
	Root   string // before every path that is read, written or run; empty on a host
	Proc   string // "/proc"
	Getent accounts.Getent
	Now    func() time.Time
}

// ThisHost is the machine the process runs on.
func ThisHost() System {
	return System{Proc: "/proc", Getent: accounts.HostGetent, Now: time.Now}
}

// toolDeadline ends a tool that hangs, for instance on the account lock.
const toolDeadline = 30 * time.Second

// toolGrace is what a lost caller leaves to a program that writes the account
// files; the half as a whole has five seconds.
const toolGrace = 2 * time.Second

// at is where a path of the host is.
func (s System) at(path string) string { return filepath.Join("/", s.Root, path) }

// find returns the path of one of the host's own programs. Root runs programs
// from the system's folders only, whatever PATH says.
func (s System) find(name string) (string, bool) {
	for _, dir := range []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		path := filepath.Join(s.at(dir), name)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, true
		}
	}
	return "", false
}

// accountTool runs a program that writes the account files. A lost caller does
// not cut it off at once: it would leave its temporary files in /etc.
func (s System) accountTool(ctx context.Context, stdin []byte, name string, args ...string) (string, error) {
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(toolGrace, cancel) })
	defer stop()
	return s.tool(patient, stdin, name, args...)
}

// tool runs one of the host's programs with a small environment. It returns all
// it printed, also beside an error, which names the program and its last words.
func (s System) tool(ctx context.Context, stdin []byte, name string, args ...string) (string, error) {
	path, ok := s.find(name)
	if !ok {
		return "", report.Coded(report.ExitState, "the host has no %s", name)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, toolDeadline, fmt.Errorf("no end within %s", toolDeadline))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		err = fmt.Errorf("%s: %w: %s", name, err, oneLine(out.String()))
	}
	return out.String(), err
}

// oneLine is what a program printed, fit for a message.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// read returns a file of the system, nil when there is none.
func (s System) read(path string, limit int64) ([]byte, error) {
	dir, name, err := safefs.OpenParent(s.at(path))
	if err == nil {
		defer dir.Close()
		var data []byte
		if data, err = dir.ReadFile(name, limit); err == nil {
			return data, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return nil, err
}
