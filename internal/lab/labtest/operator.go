package labtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Finish runs cmd and answers with what it said and its exit code. It fails the
// test only when cmd could not be started.
func Finish(t testing.TB, cmd *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("labtest: run %q: %v", cmd.Args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Command is the command line of the programs under test, run under a umask.
func Command(t testing.TB, umask string, args ...string) *exec.Cmd {
	t.Helper()
	program := filepath.Join(Binaries(t), "agentworks-deploy")
	return exec.Command("/bin/sh", append([]string{"-c", `umask "$0"; exec "$@"`, umask, program}, args...)...)
}

// Operator is a lab with the operator's side of it, for one test, which fails
// when something cannot be done: the command line and a folder of host files.
type Operator struct {
	*Lab
	T     testing.TB
	Hosts string // the folder
}

// Operate gives l an operator, who has no host file yet.
func Operate(t testing.TB, l *Lab) *Operator {
	t.Helper()
	return &Operator{Lab: l, T: t, Hosts: t.TempDir()}
}

const hostFile = `product: %s
paths: {app: %s, docs: %s, home: %s}
slots: {mode: on, prefix: %s, count: %d}
channels: {admin: {lab: {name: %s}}, service: {lab: {name: %s}}}
release: {services: [%s]}
`

// HostFile writes the host file of a product with its app in /srv and so many
// slots; services are separated by commas.
func (o *Operator) HostFile(name, product, prefix string, count int, services string) {
	o.T.Helper()
	app := "/srv/" + product
	text := fmt.Sprintf(hostFile, product, app, app+"/data/docs", app+"/home", prefix, count, o.Name, o.Name, services)
	if err := os.WriteFile(filepath.Join(o.Hosts, name+".yaml"), []byte(text), 0o644); err != nil {
		o.T.Fatalf("labtest: %v", err)
	}
}

// Command is a run of the command line under a umask, with nothing of the
// tester's environment but PATH.
func (o *Operator) Command(umask string, args ...string) *exec.Cmd {
	o.T.Helper()
	cmd := Command(o.T, umask, append([]string{"--hosts-dir", o.Hosts}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	return cmd
}

// Call runs the command line under a hostile umask (case B24).
func (o *Operator) Call(args ...string) (stdout, stderr string, code int) {
	o.T.Helper()
	return Finish(o.T, o.Command("077", args...))
}

// Must is a Call that has to end with 0. It answers with the standard output.
func (o *Operator) Must(args ...string) string {
	o.T.Helper()
	stdout, stderr, code := o.Call(args...)
	if code != 0 {
		o.T.Fatalf("%q: exit %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

// Sh runs a script as root and returns what it printed.
func (o *Operator) Sh(script string) string {
	o.T.Helper()
	return o.MustExec(o.T, "/bin/sh", "-ec", script)
}

// As reports whether a script works for an account.
func (o *Operator) As(user, script string) bool {
	o.T.Helper()
	_, _, code := o.ExecAs(o.T, user, "/bin/sh", "-c", script)
	return code == 0
}
