package cli

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/lab/labtest"
)

// deployed runs the built program against the lab, as a person would.
func deployed(t *testing.T, l *labtest.Lab, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(labtest.Binaries(t), program), args...)
	cmd.Env = append(hostsEnv(t), "AGENTWORKS_DEPLOY_LAB="+l.Name, "PATH="+os.Getenv("PATH"))
	stdout, stderr, code = labtest.Finish(t, cmd)
	return code, stdout, stderr
}

// hostRoots are where a verb could leave something.
var hostRoots = []string{"/srv", "/data", "/etc", "/usr/local", "/home", "/root", "/var/lib/agentworks-deploy"}

func TestBadInputChangesNothingOnTheHost(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	before := l.Snapshot(t, hostRoots...)
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"slotcheck", "lab"}, 1, "lab is not provisioned: it has no on-host half: agentworks-deploy provision lab"},
		{[]string{"slotcheck", "lab", "--level", "deep"}, 2, `"deep" is no level`},
		{[]string{"slotcheck", "lab", "--format", "yaml"}, 2, `"yaml" is no format`},
		{[]string{"slotcheck", "lab", "--app", "/srv/vs"}, 2, "--app goes with --local"},
		{[]string{"slotcheck", "nosuch"}, 2, `unknown host "nosuch"`},
		{[]string{"provision", "lab", "--set", "slots.prefix=0day"}, 2, "--set: slots.prefix: "},
		{[]string{"provision", "lab", "--set", "paths.app=/srv/agent works"}, 2, "--set: paths.app: "},
		{[]string{"provision", "lab", "--set", "product=nobodyhere", "--set", "paths.app=/srv/nobodyhere"}, 1, "nobodyhere"},
		{[]string{"deploy", "lab", "--release", "/nonexistent"}, 2, "/nonexistent"},
	} {
		code, stdout, stderr := deployed(t, l, c.args...)
		if code != c.code || !strings.Contains(stdout+stderr, c.text) {
			t.Errorf("%v: exit %d, want %d with %q:\n%s%s", c.args, code, c.code, c.text, stdout, stderr)
		}
		if lines := failureLines(stderr); lines > 1 || strings.Contains(stderr, "usage:") {
			t.Errorf("%v: %d failure lines:\n%s", c.args, lines, stderr)
		}
	}
	if diff := before.Diff(l.Snapshot(t, hostRoots...)); len(diff) > 0 {
		t.Errorf("the host changed:\n%s", strings.Join(diff, "\n"))
	}
}

func TestProvisionWithoutRootIsWrongWords(t *testing.T) {
	dir, err := os.MkdirTemp("", "agentworks-cli")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "here.yaml")
	text := "product: here\nchannels: {admin: {local: {}}, service: {local: {}}}\n"
	if err := errors.Join(os.WriteFile(file, []byte(text), 0o644), os.Chmod(file, 0o644), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--",
		filepath.Join(labtest.Binaries(t), program), "provision", "here", "--hosts-dir", dir)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || failureLines(string(out)) != 1 || !strings.Contains(string(out), "not root") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// Whatever needs root says so in one line, and never names a file of root's.
func TestWithoutRootALabIsWrongWords(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	bin := filepath.Join(labtest.Binaries(t), program)
	for line, code := range map[string]int{
		"slotcheck lab": 2, "slots status lab": 2, "slots assign lab u1": 2, "deploy lab --release " + labtest.Binaries(t) + "/sample-release": 2, "provision lab": 2, "lab status": 2,
		"lab up": 2, "lab down": 2, "lab break releases-0700": 2, "lab heal": 2, "lab exec true": 125,
	} {
		words := append([]string{"--reuid=65534", "--regid=65534", "--clear-groups", "--", bin}, strings.Fields(line)...)
		cmd := exec.Command("setpriv", words...)
		cmd.Env = append(hostsEnv(t), "AGENTWORKS_DEPLOY_LAB="+l.Name)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code || failureLines(string(out)) != 1 || !strings.Contains(string(out), "not root: ") || strings.Contains(string(out), "permission denied") {
			t.Errorf("%s: %v, want exit %d:\n%s", line, err, code, out)
		}
	}
}

func TestATestSlotThatTheHostCannotHaveIsWrongWords(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	for _, slot := range []string{"foo", "slot99", "slot1", "slot051"} {
		code, stdout, stderr := deployed(t, l, "slotcheck", "lab", "--test-slot", slot)
		if code != 2 || stdout != "" || !strings.Contains(stderr, "is no slot of lab: slot01 to slot50") {
			t.Errorf("%s: exit %d\n%s%s", slot, code, stdout, stderr)
		}
	}
}

func TestDownOfNoLabLeavesNothing(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	const name = "never-made-by-anybody"
	code, stdout, stderr := deployed(t, l, "lab", "down", "--name", name)
	if code != 0 || stdout != "there is no lab "+name+": nothing to do\n" {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if left, err := filepath.Glob("/var/lib/agentworks-deploy/labs/*" + name + "*"); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if left, err := filepath.Glob("/var/lib/agentworks-deploy/labs/.*" + name + "*"); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// A lab without the platform is told how to get one.
func TestProvisionOfABareLabNamesTheReference(t *testing.T) {
	l := labtest.New(t)
	code, stdout, stderr := deployed(t, l, "provision", "lab")
	if code != 1 || !strings.Contains(stderr, "agentworks-deploy lab up --name "+l.Name+" --reference") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}

func failureLines(stderr string) int {
	n := 0
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, program+": ") {
			n++
		}
	}
	return n
}

func TestASecondRootVerbNamesTheHolder(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	if code, _, stderr := deployed(t, l, "provision", "lab"); code != 0 {
		t.Fatalf("provision: exit %d: %s", code, stderr)
	}
	// Another run holds the lock, as the kernel and the file say.
	var lock *os.File
	err := l.In(func() (err error) {
		if lock, err = os.OpenFile("/run/agentworks-deploy/vs.lock", os.O_RDWR, 0); err != nil {
			return err
		}
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return err
		}
		_, err = lock.WriteString("4711 provision 2026-01-02T03:04:05Z\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	code, stdout, stderr := deployed(t, l, "provision", "lab")
	if code != 4 || stdout != "" || !strings.Contains(stderr, "provision (pid 4711) since 2026-01-02T03:04:05Z") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if code, _, stderr := deployed(t, l, "provision", "lab", "--plan"); code != 0 {
		t.Errorf("a plan beside it: exit %d: %s", code, stderr)
	}
}

// Whatever half of the same protocol is installed serves an audit, and the
// person is told when it is not the build they run.
func TestAnotherBuildOnTheHostIsSaidSo(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	if code, _, stderr := deployed(t, l, "provision", "lab"); code != 0 {
		t.Fatalf("provision: exit %d: %s", code, stderr)
	}
	const half = "/usr/local/libexec/agentworks/agentworks-deploy"
	l.MustExec(t, "sh", "-c", "echo other >>"+half)
	_, stdout, stderr := deployed(t, l, "slotcheck", "lab")
	if !strings.Contains(stderr, half+", is another build than this program") || !strings.Contains(stdout, "slot self-test: ") {
		t.Errorf("%s%s", stdout, stderr)
	}
	l.MustExec(t, "sh", "-c", "echo '#!/bin/sh' >"+half)
	code, _, stderr := deployed(t, l, "slotcheck", "lab")
	if code != 1 || !strings.Contains(stderr, "does not speak protocol 1: agentworks-deploy provision lab") {
		t.Errorf("a half that is none: exit %d: %s", code, stderr)
	}
	if code, _, stderr := deployed(t, l, "provision", "lab"); code != 0 {
		t.Fatalf("provision does not heal it: exit %d: %s", code, stderr)
	}
	if code, stdout, stderr := deployed(t, l, "slotcheck", "lab"); strings.Contains(stderr, "another build") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}
