// Package labtest gives tests labs of their own. A package that uses it says
//
//	func TestMain(m *testing.M) { os.Exit(labtest.Main(m)) }
//
// and its tests call New, or Shared for the one lab of the package. A lab is
// gone at the end, also when the test failed; what a killed test process left
// is removed when the next one starts. Only tests import this package.
package labtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentworks-deploy/internal/lab"
)

const initVerb = "lab-init"

// process is this test process: what its labs are called, and the shared one.
var process struct {
	main   atomic.Bool // Main was called
	labs   atomic.Int64
	shared struct {
		sync.Once
		lab *Lab
		err error
	}
	programs programs
}

// Main runs a package's tests and returns the exit code. The same test binary,
// run again, is the first process of its labs.
func Main(m *testing.M) int {
	if len(os.Args) == 2 && os.Args[1] == initVerb {
		fmt.Fprintln(os.Stderr, lab.Init())
		return 1
	}
	process.main.Store(true)
	sweep()
	code := m.Run()
	if l := process.shared.lab; l != nil {
		if _, err := l.Reset(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "labtest:", err)
			code = 1
		}
	}
	process.programs.remove()
	return code
}

// Lab is a lab that is up, for one test or one package.
type Lab struct{ *lab.Lab }

// Option changes how a lab is made.
type Option func(*lab.UpOptions)

// Reference makes the reference platform of docs/lab.md in the lab.
func Reference() Option { return func(o *lab.UpOptions) { o.Reference = true } }

// New brings up a lab that is removed when t ends.
func New(t testing.TB, options ...Option) *Lab {
	t.Helper()
	l, err := up(options)
	if l != nil {
		t.Cleanup(func() {
			if _, err := l.Reset(context.Background()); err != nil {
				t.Errorf("labtest: %v", err)
			}
		})
	}
	if err != nil {
		t.Fatalf("labtest: %v", err)
	}
	return l
}

// Shared is the one lab of this test process, made by the first call with its
// options and removed by Main.
func Shared(t testing.TB, options ...Option) *Lab {
	t.Helper()
	s := &process.shared
	s.Do(func() { s.lab, s.err = up(options) })
	if s.err != nil {
		t.Fatalf("labtest: %v", s.err)
	}
	return s.lab
}

// up starts the next lab of this process; the lab is returned with the error
// when it has to be removed.
func up(options []Option) (*Lab, error) {
	if !process.main.Load() {
		return nil, errors.New("the package's TestMain must call labtest.Main")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	name, err := nextName()
	if err != nil {
		return nil, err
	}
	l, err := lab.Find(name)
	if err != nil {
		return nil, err
	}
	o := lab.UpOptions{Init: []string{self, initVerb}, Progress: func(text string) {
		fmt.Fprintf(os.Stderr, "labtest: lab %s: %s\n", name, text)
	}}
	for _, option := range options {
		option(&o)
	}
	failed, err := l.Up(context.Background(), o)
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("lab %s is degraded: %s", name, strings.Join(failed, ", "))
	}
	return &Lab{l}, err
}

// Cmd is a program to run in a lab; User is root where it is empty.
type Cmd struct {
	Argv  []string
	User  string
	Env   []string
	Dir   string
	Stdin string
}

// A test's program that takes longer hangs.
const commandWait = 3 * time.Minute

// Run runs one program in the lab. It fails the test only when the program could
// not be handed over at all; a program that does not exist is code 127.
func (l *Lab) Run(t testing.TB, c Cmd) (stdout, stderr string, code int) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), commandWait)
	defer stop()
	if c.User == "" {
		c.User = "root"
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin = c.Env, c.Dir, strings.NewReader(c.Stdin)
	cmd.Stdout, cmd.Stderr = &out, &errs
	// A program may leave others behind that keep its streams open.
	cmd.WaitDelay = 2 * time.Second
	err := l.Start(cmd, c.User)
	if err == nil {
		err = cmd.Wait()
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	code = lab.ExitCode(err)
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) && code == 125 {
		t.Fatalf("labtest: run %q in lab %s: %v (%v)\n%s", c.Argv, l.Name, err, ctx.Err(), errs.String())
	}
	return out.String(), errs.String(), code
}

// Exec runs a program as root.
func (l *Lab) Exec(t testing.TB, argv ...string) (stdout, stderr string, code int) {
	t.Helper()
	return l.Run(t, Cmd{Argv: argv})
}

// ExecAs runs a program as another account of the lab.
func (l *Lab) ExecAs(t testing.TB, user string, argv ...string) (stdout, stderr string, code int) {
	t.Helper()
	return l.Run(t, Cmd{Argv: argv, User: user})
}

// MustExec runs a program as root, fails the test when it does not end with 0,
// and returns its standard output without the last line feed.
func (l *Lab) MustExec(t testing.TB, argv ...string) string {
	t.Helper()
	stdout, stderr, code := l.Exec(t, argv...)
	if code != 0 {
		t.Fatalf("labtest: %q in lab %s: exit %d\n%s%s", argv, l.Name, code, stdout, stderr)
	}
	return strings.TrimSuffix(stdout, "\n")
}

// ReadFile reads a file as the lab has it.
func (l *Lab) ReadFile(t testing.TB, path string) string {
	t.Helper()
	var text []byte
	l.must(t, func() (err error) {
		text, err = os.ReadFile(path)
		return err
	})
	return string(text)
}

// WriteFile writes a file of root's with exactly that mode, in a folder that
// exists.
func (l *Lab) WriteFile(t testing.TB, path, content string, mode os.FileMode) {
	t.Helper()
	l.must(t, func() error {
		return errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode))
	})
}

// CopyIn copies a file of the machine into the lab, as root's with that mode.
func (l *Lab) CopyIn(t testing.TB, from, to string, mode os.FileMode) {
	t.Helper()
	source, err := os.Open(from)
	if err != nil {
		t.Fatalf("labtest: %v", err)
	}
	defer source.Close()
	l.must(t, func() error {
		target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(target, source)
		return errors.Join(err, target.Chmod(mode), target.Close())
	})
}

func (l *Lab) must(t testing.TB, f func() error) {
	t.Helper()
	if err := l.In(f); err != nil {
		t.Fatalf("labtest: lab %s: %v", l.Name, err)
	}
}
