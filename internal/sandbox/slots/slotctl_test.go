package slots_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentworks-deploy/internal/sandbox/slots"
)

// These tests run the real slotctl, as root in a mount namespace of its own in
// which made-up account files lie over the machine's. Numbers far from real
// accounts stand for the service and its slots.
const (
	svc    = 76000
	slot01 = 76001
	slot02 = 76002
	shared = 76100
)

// world is a slot host as far as slotctl looks at one.
type world struct {
	t       *testing.T
	root    string // world-traversable scratch folder
	app     string
	slotctl string
	config  slots.Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := os.MkdirTemp("", "slotctl-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	// The resolved name, since slotctl compares resolved names.
	if root, err = filepath.EvalSymlinks(root); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, root: root, app: filepath.Join(root, "srv/vs"), slotctl: filepath.Join(root, "libexec/slotctl")}
	w.dir(root, 0, 0, 0o755)
	w.dir(filepath.Join(root, "srv"), 0, 0, 0o755)
	for _, d := range []string{"", "data", "data/docs", "releases/r1/bin", "slots", "slots/home", "slots/state", "slots/run"} {
		w.dir(w.in(d), svc, svc, 0o711)
	}
	for _, d := range []string{"releases", "releases/r1"} {
		w.dir(w.in(d), svc, svc, 0o711)
	}
	for name, id := range map[string]int{"slot01": slot01, "slot02": slot02} {
		w.dir(w.in("slots/home", name), id, id, 0o700)
		w.dir(w.in("slots/state", name), svc, id, 0o2770)
		w.dir(w.in("slots/run", name), svc, id, 0o2770)
	}
	w.file(filepath.Join(root, "passwd"), fmt.Sprintf("root:x:0:0::/root:/bin/sh\nvs:x:%[1]d:%[1]d::%[4]s:/bin/sh\nslot01:x:%[2]d:%[2]d:AgentWorks slot:%[5]s/slot01:/usr/sbin/nologin\nslot02:x:%[3]d:%[3]d:AgentWorks slot:%[5]s/slot02:/usr/sbin/nologin\n",
		svc, slot01, slot02, w.app, w.in("slots/home")), 0, 0, 0o644)
	w.file(filepath.Join(root, "group"), fmt.Sprintf("root:x:0:\nvs:x:%d:\nslot01:x:%d:vs\nslot02:x:%d:vs\nslotshared:x:%d:vs,slot01,slot02\n",
		svc, slot01, slot02, shared), 0, 0, 0o644)
	// The stand-in for the launcher: runs the words behind "--".
	w.file(w.in("releases/r1/bin/runner"), "#!/bin/sh\nshift 3\nexec \"$@\"\n", svc, svc, 0o755)
	w.dir(filepath.Dir(w.slotctl), 0, 0, 0o755)
	program, err := os.ReadFile(built(t))
	if err != nil {
		t.Fatal(err)
	}
	w.file(w.slotctl, string(program), 0, 0, 0o755)
	w.config = slots.Config{
		SlotPrefix:    "slot",
		AllowedExec:   []string{w.in("releases/*/bin/runner"), "/bin/sh", "/usr/bin/env", "/usr/bin/cat", "/usr/bin/tmux", "/usr/bin/chmod"},
		AllowedCwd:    []string{w.in("data/docs"), w.in("slots")},
		SlotRunRoot:   w.in("slots/run"),
		SlotStateRoot: w.in("slots/state"),
		DocsRoot:      w.in("data/docs"),
		SlotTable:     filepath.Join(root, "slots.json"),
	}
	w.writeConfig(0o644)
	return w
}

func (w *world) in(elem ...string) string { return filepath.Join(append([]string{w.app}, elem...)...) }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) dir(path string, uid, gid int, mode uint32) {
	w.t.Helper()
	w.must(os.MkdirAll(path, 0o755))
	w.must(os.Chown(path, uid, gid))
	w.must(syscall.Chmod(path, mode))
}

func (w *world) file(path, text string, uid, gid int, mode uint32) {
	w.t.Helper()
	w.must(os.WriteFile(path, []byte(text), 0o600))
	w.must(os.Chown(path, uid, gid))
	w.must(syscall.Chmod(path, mode))
}

func (w *world) writeConfig(mode uint32) {
	w.t.Helper()
	text, err := json.Marshal(w.config)
	w.must(err)
	w.file(filepath.Join(filepath.Dir(w.slotctl), slots.ConfigName), string(text), 0, 0, mode)
}

// call is one run of slotctl; zero values mean slot01 with its own groups.
type call struct {
	args   []string
	stdin  string
	as     []string // setpriv's words
	before string   // shell words run as root in the namespace, first
	parent string   // a program that stays as slotctl's parent
	env    []string
	fds    []*os.File // inherited descriptors from 3 on
	attr   syscall.SysProcAttr
}

func groups(ids ...int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
}

func as(uid int, groups string) []string {
	return []string{"--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(uid), "--groups", groups}
}

func (w *world) command(c call) *exec.Cmd {
	if c.args == nil {
		c.args = []string{"exec"}
	}
	if c.as == nil {
		c.as = as(slot01, groups(slot01, shared))
	}
	script := `mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/group" /etc/group && shift && ` + c.before + " exec " + c.parent + ` setpriv "$@"`
	words := append([]string{"-c", script, "sh", w.root}, c.as...)
	cmd := exec.Command("/bin/sh", append(append(words, w.slotctl), c.args...)...)
	cmd.Stdin = strings.NewReader(c.stdin)
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, c.env...)
	cmd.ExtraFiles = c.fds
	attr := c.attr
	attr.Unshareflags |= syscall.CLONE_NEWNS
	cmd.SysProcAttr = &attr
	return cmd
}

type result struct {
	exit           int
	stdout, stderr string
}

func (w *world) run(c call) result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cmd := w.command(c)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	w.must(cmd.Start())
	stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	defer stop()
	err := cmd.Wait()
	if ctx.Err() != nil {
		w.t.Fatal("slotctl hung")
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// request writes an exec request for argv in the docs root.
func (w *world) request(edit func(*slots.Request), argv ...string) string {
	w.t.Helper()
	r := slots.Request{Argv: argv, Cwd: w.in("data/docs"), Env: []string{"PATH=/usr/bin:/bin"}}
	if edit != nil {
		edit(&r)
	}
	text, err := json.Marshal(r)
	w.must(err)
	return string(text)
}

func (w *world) sh(script string) string { return w.request(nil, "/bin/sh", "-c", script) }

func (w *world) want(r result, exit int, fragment string) {
	w.t.Helper()
	if r.exit != exit || !strings.Contains(r.stderr, fragment) {
		w.t.Errorf("exit %d, stderr %q; want %d and %q", r.exit, r.stderr, exit, fragment)
	}
}

// waitFor reads r up to the text that says a command is where the test needs it.
func waitFor(t *testing.T, r io.Reader, text string) {
	t.Helper()
	var got []byte
	b := make([]byte, 1)
	for !bytes.Contains(got, []byte(text)) {
		if _, err := r.Read(b); err != nil {
			t.Fatalf("waiting for %q: %v after %q", text, err, got)
		}
		got = append(got, b[0])
	}
}
