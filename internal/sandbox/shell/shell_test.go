package shell

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentworks-deploy/internal/sandbox/grants"
	"agentworks-deploy/internal/sandbox/policy"
	"agentworks-deploy/internal/sandbox/slots"
)

// chain leads through a program of the test's in place of sudo: the real one is
// tried in a lab, through sandbox run.
func chain(t *testing.T, script string) *Chain {
	t.Helper()
	dir := t.TempDir()
	sudo := filepath.Join(dir, "sudo")
	if err := os.WriteFile(sudo, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	app := filepath.Join(dir, "vs")
	for _, d := range []string{"data/docs/Workflow/wf1", "slots/home/slot01", "slots/state/slot01", "slots/run/slot01", "state"} {
		if err := os.MkdirAll(filepath.Join(app, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return &Chain{
		Sudo: sudo, Slotctl: "/libexec/slotctl", Launcher: app + "/releases/r1/bin/runner",
		Config:    &slots.Config{SlotPrefix: "slot", SlotRunRoot: app + "/slots/run", SlotStateRoot: app + "/slots/state"},
		SlotHomes: app + "/slots/home",
		Places:    grants.Places{Docs: app + "/data/docs", State: app + "/state", SharedProfile: app + "/state/browser-profile"},
		Environ:   []string{"AUTH_SECRET=x", "TZ=UTC", "HOME=/srv/vs/home"},
	}
}

func (c *Chain) wf() string { return c.Places.Docs + "/Workflow/wf1" }

func TestWrapMakesTheWholeRequest(t *testing.T) {
	c := chain(t, "")
	c.SystemPaths = "/opt/tools:relative"
	call, err := c.Wrap(Command{
		Slot: "slot01", Dir: c.wf(), Read: []string{c.wf(), "/opt/tools/bin", "/etc"}, Write: []string{c.SlotHomes + "/slot01"},
		BrowserSession: "workflow-1--browser", Env: []string{"OWN=1"}, Argv: []string{"make", "-j", "a b"}, Unfiltered: []string{c.Places.State},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{c.Sudo, "-n", "-u", "slot01", "/libexec/slotctl", "exec"}; !slices.Equal(call.argv, want) {
		t.Errorf("words %q", call.argv)
	}
	req, err := slots.ReadRequest(strings.NewReader(string(call.request)))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{c.Launcher, "--config", "/proc/self/fd/3", "--", "/bin/sh", "-c", `exec "$0" "$@"`, "make", "-j", "a b"}; !slices.Equal(req.Argv, want) {
		t.Errorf("argv %q", req.Argv)
	}
	if req.Cwd != c.wf() || !req.UserNS || req.Channel {
		t.Errorf("request %+v", req)
	}
	for _, want := range []string{"TZ=UTC", "HOME=" + c.SlotHomes + "/slot01", "USER=slot01", "PATH=/usr/local/bin:/usr/bin:/bin", "SANDBOX_EXTRA_SYSTEM_PATHS=/opt/tools:relative", "OWN=1", "GIT_CONFIG_COUNT=3"} {
		if !slices.Contains(req.Env, want) {
			t.Errorf("%s is missing in %q", want, req.Env)
		}
	}
	if strings.Contains(strings.Join(req.Env, "\n"), "AUTH_SECRET") {
		t.Error("a secret came along")
	}
	p, err := policy.Parse([]byte(*req.FD3))
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(policy.Policy{
		ReadPaths:  []string{c.wf(), "/opt/tools/bin", c.Places.State},
		WritePaths: []string{c.SlotHomes + "/slot01"},
		WorkDir:    c.wf(), PrivateTmp: true, PrivateRoots: []string{c.Config.SlotRunRoot}, BrowserScoped: true, PrivatePTS: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("policy %s\nwant   %s", got, want)
	}
	var names []string
	for _, d := range call.Dropped {
		names = append(names, d.Path)
	}
	if want := []string{c.Places.State + "/browser-profile-workflows/workflow-1--browser", "/tmp/.agent-browser/o/workflow-1--browser", "/etc"}; !slices.Equal(names, want) {
		t.Errorf("dropped %q", names)
	}
	if _, err := os.Lstat(c.Places.State + "/browser-profile-workflows"); err == nil {
		t.Error("G-01: a profile folder was made")
	}
}

func TestWrapRefuses(t *testing.T) {
	c := chain(t, "")
	for name, edit := range map[string]func(*Command){
		"no program":         func(m *Command) { m.Argv = nil },
		"relative dir":       func(m *Command) { m.Dir = "wf1" },
		"private dir":        func(m *Command) { m.Dir = c.Places.State },
		"dir outside":        func(m *Command) { m.Dir = "/etc" },
		"run folder":         func(m *Command) { m.Dir = c.Config.SlotRunRoot + "/slot01" },
		"another slot":       func(m *Command) { m.Dir = c.SlotHomes + "/slot02" },
		"no slot":            func(m *Command) { m.Slot = "root" },
		"an option as slot":  func(m *Command) { m.Slot = "-slot01" },
		"bytes that JSON no": func(m *Command) { m.Argv = []string{"echo", "\xff"} },
		"NUL":                func(m *Command) { m.Env = []string{"A=\x00"} },
		"session is a path":  func(m *Command) { m.BrowserSession = "../../x" },
		"too long":           func(m *Command) { m.Argv = []string{"echo", strings.Repeat("a", slots.MaxRequest)} },
	} {
		cmd := Command{Slot: "slot01", Dir: c.wf(), Argv: []string{"pwd"}}
		edit(&cmd)
		if _, err := c.Wrap(cmd); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func call(t *testing.T, script string) *Call {
	t.Helper()
	c := chain(t, script)
	call, err := c.Wrap(Command{Slot: "slot01", Dir: c.wf(), Argv: []string{"pwd"}})
	if err != nil {
		t.Fatal(err)
	}
	return call
}

func TestCapture(t *testing.T) {
	c := call(t, `cat; printf "%s " "$@" >&2; env >&2; exit 7`)
	out, err := c.Capture(t.Context(), 1<<20)
	if err != nil || out.Exit != 7 || out.Stdout != string(c.request) || out.Truncated {
		t.Errorf("%+v, %v", out, err)
	}
	if !strings.HasPrefix(out.Stderr, "-n -u slot01 /libexec/slotctl exec PATH=") || strings.Contains(out.Stderr, "LANG") || strings.Contains(out.Stderr, "HOME") {
		t.Errorf("words and environment: %q", out.Stderr)
	}
	out, err = call(t, "echo 1234567890; echo err >&2; kill -KILL $$").Capture(t.Context(), 5)
	if err != nil || out.Exit != 137 || out.Stdout != "12345" || out.Stderr != "err\n" || !out.Truncated {
		t.Errorf("limited: %+v, %v", out, err)
	}
	// A chain that never reads the request is not an error of ours.
	if out, err := call(t, "exit 1").Capture(t.Context(), 10); err != nil || out.Exit != 1 {
		t.Errorf("unread: %+v, %v", out, err)
	}
}

func TestCaptureStopsAtItsDeadline(t *testing.T) {
	why := errors.New("no answer in time")
	deadline := func() context.Context {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, why)
		t.Cleanup(cancel)
		return ctx
	}
	out, err := call(t, "trap 'echo told; exit 3' TERM; echo begun; while :; do sleep 0.02; done").Capture(deadline(), 100)
	if !errors.Is(err, why) || errors.Is(err, ErrLost) || out.Stdout != "begun\ntold\n" {
		t.Errorf("%+v, %v", out, err)
	}
	done, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := call(t, "echo begun").Capture(done, 100); !errors.Is(err, why) {
		t.Errorf("already over: %v", err)
	}
}

func TestCaptureOfAMissingSudo(t *testing.T) {
	c := call(t, "")
	c.argv[0] = "/nonexistent/sudo"
	if _, err := c.Capture(t.Context(), 10); err == nil || !strings.Contains(err.Error(), "start the chain") {
		t.Errorf("got %v", err)
	}
}

// TestRunTellsSudosEndFromTheCommands: sudo's exit code is 1, and its words may
// be a command's. Only whether the request was taken tells them apart.
func TestRunTellsSudosEndFromTheCommands(t *testing.T) {
	long := strings.Repeat("a", 1<<20) // more than a pipe holds
	for name, tt := range map[string]struct {
		script, word string
		exit         int
		stderr       string
		sudo         string
	}{
		"sudo refuses":                 {`echo "sudo: a password is required" >&2; echo more >&2; exit 1`, "", 0, "", "sudo starts nothing as slot01 (sudo: a password is required)"},
		"sudo refuses a long request":  {`echo "sudo: no" >&2; exit 1`, long, 0, "", "sudo starts nothing as slot01 (sudo: no)"},
		"sudo says nothing":            {`exit 1`, "", 0, "", "sudo starts nothing as slot01 (it said nothing)"},
		"a command that looks like it": {`cat >/dev/null; echo "sudo: a password is required" >&2; exit 1`, "", 1, "sudo: a password is required\n", ""},
		"a long request":               {`cat >/dev/null; echo err >&2; exit 1`, long, 1, "err\n", ""},
		"sudo warns first":             {`echo "sudo: unable to resolve host" >&2; cat >/dev/null; echo err >&2; exit 3`, "", 3, "sudo: unable to resolve host\nerr\n", ""},
		"slotctl refuses unread":       {`echo "slotctl: refused: x" >&2; exit 126`, "", 126, "slotctl: refused: x\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := chain(t, tt.script)
			call, err := c.Wrap(Command{Slot: "slot01", Dir: c.wf(), Argv: []string{"echo", tt.word}})
			if err != nil {
				t.Fatal(err)
			}
			var stdout, stderr strings.Builder
			exit, err := call.Run(t.Context(), &stdout, &stderr)
			said := ""
			if no, ok := errors.AsType[*SudoError](err); ok {
				said = no.Error()
			} else if err != nil {
				t.Fatal(err)
			}
			if exit != tt.exit || stderr.String() != tt.stderr || said != tt.sudo {
				t.Errorf("exit %d, %q, %q", exit, stderr.String(), said)
			}
		})
	}
}

// What a command writes while it runs is not held back.
func TestRunPassesStandardErrorOnWhileTheCommandRuns(t *testing.T) {
	call := call(t, `cat >/dev/null; echo begun >&2; while [ ! -e "$0.go" ]; do sleep 0.02; done`)
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := call.Run(t.Context(), io.Discard, w)
		done <- err
	}()
	got := make([]byte, 6)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "begun\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.WriteFile(call.argv[0]+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
