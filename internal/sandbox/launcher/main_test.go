package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/sandbox/policy"
)

// The tests run as root, in a mount namespace of their own with an empty tmpfs
// on /srv: nothing of the machine changes. Commands run under ids that no
// account has.
const (
	slotID    = 71001 // runs the launcher, like a slot
	serviceID = 71002 // owns the launcher, like the service account
	otherID   = 71003 // another slot
)

const namespaceVariable = "LAUNCHER_TEST_NAMESPACE"

// runnerDir holds the launcher and, as "probe", the test binary: both have to
// be reachable for the slot.
const (
	runnerDir = "/srv/release/bin"
	runner    = runnerDir + "/video-studio-landlock-runner"
	probe     = runnerDir + "/probe"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		playRole(role, os.Args[1:])
	}
	if os.Getenv(probeVariable) != "" {
		playRole("probe", os.Args[1:])
	}
	if os.Getenv(namespaceVariable) == "" {
		os.Exit(inNamespace())
	}
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "these tests need root and a mount namespace:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func inNamespace() int {
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), namespaceVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests need root:", err)
		return 1
	}
	return 0
}

func prepare() error {
	unix.Umask(0o022)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/srv", "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	if err := os.MkdirAll(runnerDir, 0o755); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-o", runner, "agentworks-deploy/cmd/landlock-runner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the launcher: %w\n%s", err, out)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if err := os.WriteFile(probe, self, 0o755); err != nil {
		return err
	}
	return os.Lchown(runner, serviceID, serviceID)
}

// start says how the launcher is started.
type start int

const (
	plainly   start = iota // by an ordinary account
	bySlotctl              // in a user namespace of its own, as slotctl does
	byOldest               // the same with CAP_SYS_ADMIN alone
)

func (s start) String() string { return [...]string{"plainly", "bySlotctl", "byOldestSlotctl"}[s] }

// everyStart runs a test once for each way of starting the launcher.
func everyStart(t *testing.T, test func(t *testing.T, how start)) {
	t.Helper()
	for _, how := range []start{plainly, bySlotctl, byOldest} {
		t.Run(how.String(), func(t *testing.T) { test(t, how) })
	}
}

// world is one test's part of /srv.
type world struct {
	dir string // a folder of the slot, mode 0755
	env []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	top, err := os.MkdirTemp("/srv", "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	w := &world{dir: filepath.Join(top, "ws"), env: []string{"PATH=/usr/bin:/bin", "GORACE=atexit_sleep_ms=0"}}
	w.mkdir(t, "")
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// mkdir and write make what the slot owns.
func (w *world) mkdir(t *testing.T, name string) string {
	t.Helper()
	at := ""
	for _, part := range strings.Split(name, "/") {
		at = filepath.Join(at, part)
		if err := os.Mkdir(w.path(at), 0o755); !errors.Is(err, os.ErrExist) {
			w.own(t, at, slotID, err)
		}
	}
	return w.path(name)
}

func (w *world) write(t *testing.T, name, text string) string {
	t.Helper()
	return w.own(t, name, slotID, os.WriteFile(w.path(name), []byte(text), 0o644))
}

func (w *world) link(t *testing.T, name, target string, owner int) string {
	t.Helper()
	return w.own(t, name, owner, os.Symlink(target, w.path(name)))
}

func (w *world) own(t *testing.T, name string, owner int, err error) string {
	t.Helper()
	if err == nil {
		err = os.Lchown(w.path(name), owner, owner)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w.path(name)
}

// result is how a run ended.
type result struct {
	stdout, stderr string
	code           int // 128+n for a death by signal n
}

// run runs argv under a policy. read_paths get the folder of the probe.
func (w *world) run(t *testing.T, how start, p policy.Policy, argv ...string) result {
	t.Helper()
	if p.WorkDir == "" {
		p.WorkDir = w.dir
	}
	p.BrowserScoped = true
	p.ReadPaths = append(p.ReadPaths, runnerDir)
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return w.runText(t, how, string(text), argv...)
}

// runText hands the policy over on descriptor 3.
func (w *world) runText(t *testing.T, how start, text string, argv ...string) result {
	t.Helper()
	fd, err := unix.MemfdCreate("policy", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "policy")
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	cmd := w.command(how, append([]string{runner, "--config", handoverPath, "--"}, argv...)...)
	cmd.ExtraFiles = []*os.File{file}
	return finish(t, cmd)
}

// command prepares a command of the slot, started in the given way.
func (w *world) command(how start, argv ...string) *exec.Cmd {
	env := w.env
	if how != plainly {
		caps := map[start]string{bySlotctl: "slotctl", byOldest: "slotctl-oldest"}[how]
		env = append([]string{roleVariable + "=" + caps}, env...)
		argv = append([]string{probe}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: slotID, Gid: slotID}}
	return cmd
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := result{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		r.code = 128 + int(status.Signal())
	}
	return r
}

// sh runs a shell line.
func (w *world) sh(t *testing.T, how start, p policy.Policy, line string) result {
	t.Helper()
	return w.run(t, how, p, "/bin/sh", "-c", line)
}

// probe runs the test binary inside the sandbox.
func (w *world) probe(t *testing.T, how start, p policy.Policy, words ...string) result {
	t.Helper()
	inside := *w
	inside.env = append([]string{probeVariable + "=1"}, w.env...)
	return inside.run(t, how, p, append([]string{probe}, words...)...)
}

func (r result) wants(t *testing.T, code int, stdout string) {
	t.Helper()
	if r.code != code || r.stdout != stdout {
		t.Errorf("exit %d, stdout %q, stderr %q; want %d, %q", r.code, r.stdout, r.stderr, code, stdout)
	}
}

// refused checks a refusal of the launcher: exactly one line.
func (r result) refused(t *testing.T, code int, fragments ...string) {
	t.Helper()
	if r.code != code || r.stdout != "" || !strings.HasPrefix(r.stderr, "SANDBOX_UNAVAILABLE: ") || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("exit %d, stdout %q, stderr %q; want a refusal with %d", r.code, r.stdout, r.stderr, code)
	}
	for _, fragment := range fragments {
		if !strings.Contains(r.stderr, fragment) {
			t.Errorf("stderr %q lacks %q", r.stderr, fragment)
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
