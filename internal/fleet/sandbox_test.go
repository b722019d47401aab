package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentworks-deploy/internal/lab/labtest"
	"agentworks-deploy/internal/sandbox/policy"
	"agentworks-deploy/internal/sandbox/slots"
)

const (
	docs    = "/srv/vs/data/docs"
	crew    = docs + "/_users/u1/Chats/Work/projects/u1crew"
	slotctl = "/usr/local/libexec/agentworks/slotctl"
	tmuxDir = "/srv/vs/slots/run/slot01"
	sock    = tmuxDir + "/tmux.sock"
	home    = "/srv/vs/slots/home/slot01"
)

// chain is a lab with a live release, u1 in slot01 and u2 in slot02.
type chain struct{ operator }

func newChain(t *testing.T) chain {
	t.Helper()
	o := operatorOf(t, labtest.New(t, labtest.Reference()))
	o.first(t)
	return chain{o}
}

// sandbox runs argv as slot01 in u1's Crew project.
func (c chain) sandbox(t *testing.T, argv ...string) (stdout, stderr string, code int) {
	t.Helper()
	return c.run(t, append([]string{"sandbox", "run", "lab", "--slot", "slot01", "--dir", crew, "--"}, argv...)...)
}

// slotctl sends req to slotctl as the service would.
func (c chain) slotctl(t *testing.T, req slots.Request) (stdout, stderr string, code int) {
	t.Helper()
	text, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	return c.lab.Run(t, labtest.Cmd{User: "vs", Argv: []string{"/usr/bin/sudo", "-n", "-u", "slot01", slotctl, "exec"}, Stdin: string(text)})
}

func (c chain) tmux(t *testing.T, words ...string) (stdout, stderr string, code int) {
	t.Helper()
	return c.slotctl(t, slots.Request{
		Argv: append([]string{"/usr/bin/tmux", "-S", sock}, words...), Cwd: tmuxDir,
		Env: []string{"PATH=/usr/bin:/bin", "HOME=" + home, "SHELL=/bin/sh"},
	})
}

// TestSandboxRun goes through the whole chain of one real host.
func TestSandboxRun(t *testing.T) {
	c := newChain(t)
	t.Run("S34 V07 confined as the slot", c.confined)
	t.Run("C01 own failures are 125", c.ownFailures)
	t.Run("sudo's end is not the command's", c.sudosEnd)
	t.Run("a user manager cannot be reached", c.userManager)
	t.Run("G01 G06 dropped grants are told", c.dropped)
	t.Run("S32 other environments are closed", c.environments)
	t.Run("L07 tmux cannot be reached", c.tmuxHole)
	t.Run("U01 sudo offers one program", c.sudo)
	t.Run("S22 S23 a stop ends everything", c.stops)
}

func (c chain) confined(t *testing.T) {
	for _, tt := range []struct {
		argv   []string
		stdout string
		code   int
	}{
		{[]string{"pwd"}, crew + "\n", 0},
		{[]string{"/usr/bin/id", "-un"}, "slot01\n", 0},
		{[]string{"sh", "-c", "umask; exit 7"}, "0007\n", 7},
		{[]string{"sh", "-c", "kill -KILL $$"}, "", 137},
		{[]string{"sh", "-c", "echo x >new && stat -c %a:%U:%G new && rm new"}, "660:slot01:slot01\n", 0},
		{[]string{"cat", "/srv/vs/.env"}, "", 1},
		{[]string{"ls", "/srv/vs/state"}, "", 2},
		{[]string{"ls", docs + "/_users/u2"}, "", 2},
		{[]string{"cat", docs + "/Workflow/wf2/public.txt"}, "", 1},
		{[]string{"cat", "/var/lib/dpkg/status"}, "", 1},
		{[]string{"ls", "-A", "/tmp"}, "", 0},
		{[]string{"ls", "-A", "/srv/vs/slots/run"}, "", 0},
		{[]string{"/bin/grep", "-c", "^Cap.*:.0000000000000000$", "/proc/self/status"}, "5\n", 0},
		{[]string{"no-such-program"}, "", 127},
		{[]string{"/no/such/program"}, "", 127},
		{[]string{"/etc/passwd"}, "", 126},
	} {
		stdout, stderr, code := c.sandbox(t, tt.argv...)
		if stdout != tt.stdout || code != tt.code {
			t.Errorf("%q: exit %d, %q, %q; want %d, %q", tt.argv, code, stdout, stderr, tt.code, tt.stdout)
		}
	}
	stdout, _, _ := c.sandbox(t, "cat", "own.txt")
	if stdout != c.lab.ReadFile(t, crew+"/own.txt") {
		t.Errorf("own.txt reads %q", stdout)
	}
	stdout, _, _ = c.sandbox(t, "env")
	for line := range strings.Lines(stdout) {
		name, _, _ := strings.Cut(line, "=")
		switch name {
		case "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR", "LC_ALL":
		default:
			if !strings.HasPrefix(name, "GIT_CONFIG_") {
				t.Errorf("the command's environment holds %s", name)
			}
		}
	}
}

func (c chain) ownFailures(t *testing.T) {
	for _, args := range [][]string{
		{"nohost", "--slot", "slot01", "--dir", crew, "--", "true"},
		{"lab", "--slot", "slot01", "--dir", crew},
		{"lab", "--dir", crew, "--", "true"},
		{"lab", "--slot", "slot01", "--dir", "relative", "--", "true"},
		{"lab", "--slot", "slot01", "--dir", "/etc", "--", "true"},
		{"lab", "--slot", "root", "--dir", crew, "--", "true"},
		{"lab", "--slot", "slot01", "--dir", crew, "--browser-session", "../x", "--", "true"},
		{"lab", "--slot", "slot01", "--dir", crew, "--", "echo", "\xff"},
		{"lab", "--nonsense"},
	} {
		stdout, stderr, code := c.run(t, append([]string{"sandbox", "run"}, args...)...)
		said, _, _ := strings.Cut(stderr, "usage: ") // behind wrong words
		if code != 125 || stdout != "" || strings.Count(said, "\n") != 1 {
			t.Errorf("%q: exit %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

// Where sudo starts nothing no command ran, which its exit code 1 does not tell.
func (c chain) sudosEnd(t *testing.T) {
	rule := "/etc/sudoers.d/agentworks-slots"
	for _, tt := range []struct{ name, slot, before, after, said string }{
		{"no such account", "slot99", ":", ":", "unknown user"},
		{"no rule", "slot01", "mv " + rule + " /root/rule", "mv /root/rule " + rule, "a password is required"},
		{"an expired account", "slot01", "chage -E 1 vs", "chage -E -1 vs", "account"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c.lab.MustExec(t, "/bin/sh", "-euc", tt.before)
			defer c.lab.MustExec(t, "/bin/sh", "-euc", tt.after)
			stdout, stderr, code := c.run(t, "sandbox", "run", "lab", "--slot", tt.slot, "--dir", crew, "--", "true")
			if code != 125 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.said) ||
				!strings.Contains(stderr, "agentworks-deploy slotcheck lab") {
				t.Errorf("exit %d, %q, %q", code, stdout, stderr)
			}
		})
	}
	// A command may end and speak like sudo.
	stdout, stderr, code := c.sandbox(t, "sh", "-c", "echo 'sudo: a password is required' >&2; exit 1")
	if code != 1 || stdout != "" || stderr != "sudo: a password is required\n" {
		t.Errorf("a command's own: exit %d, %q, %q", code, stdout, stderr)
	}
}

// The slot's user manager runs what it is asked to outside every sandbox, and so
// may a service of the host. Every way to one of them is tried.
func (c chain) userManager(t *testing.T) {
	uid := c.lab.MustExec(t, "id", "-u", "slot01")
	run := "/run/user/" + uid
	c.lab.MustExec(t, "loginctl", "enable-linger", "slot01")
	// Without linger the manager ends by itself, at once or when it is told.
	defer c.lab.MustExec(t, "/bin/sh", "-euc", `loginctl disable-linger slot01
		loginctl terminate-user slot01 2>/dev/null || :
		for i in $(seq 100); do pgrep -u slot01 -x systemd >/dev/null || exit 0; sleep 0.1; done; exit 1`)
	c.lab.MustExec(t, "/bin/sh", "-euc", `for i in $(seq 100); do [ ! -S "$1" ] || exit 0; sleep 0.1; done; exit 1`, "sh", run+"/systemd/private")
	escape := []string{"env", "XDG_RUNTIME_DIR=" + run, "DBUS_SESSION_BUS_ADDRESS=unix:path=" + run + "/bus",
		"systemd-run", "--user", "--wait", "--pipe", "--quiet", "cat", "/var/lib/dpkg/status"}
	if out, stderr, code := c.lab.ExecAs(t, "slot01", escape...); code != 0 || !strings.Contains(out, "Package:") {
		t.Fatalf("control: exit %d, %q", code, stderr)
	}
	if stdout, _, code := c.sandbox(t, escape...); code == 0 || strings.Contains(stdout, "Package:") {
		t.Errorf("the user manager ran a program: exit %d", code)
	}
	// The manager's own root folder is another way to its sockets.
	manager := c.lab.MustExec(t, "pgrep", "-n", "-u", "slot01", "-x", "systemd")
	const look = `for root in "" /proc/self/root /proc/thread-self/root "/proc/$1/root" /proc/1/root; do
	for s in "$2/bus" "$2/systemd/private" "$2/systemd/notify" /run/dbus/system_bus_socket /var/run/dbus/system_bus_socket \
		/run/systemd/notify /run/systemd/journal/socket /run/systemd/journal/stdout /run/systemd/io.system.ManagedOOM; do
		[ ! -S "$root$s" ] || echo "$root$s"
	done
done
[ ! -e /dev/log ] || echo /dev/log
ls -A /run`
	if out, _, _ := c.lab.Exec(t, "/bin/sh", "-c", look, "sh", manager, run); strings.Count(out, "\n") < 30 {
		t.Fatalf("control: %q", out)
	}
	if stdout, stderr, code := c.sandbox(t, "sh", "-c", look, "sh", manager, run); stdout != "" || code != 0 {
		t.Errorf("exit %d, %q is there, %q", code, stdout, stderr)
	}
	for _, words := range [][]string{
		{"busctl", "call", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "ListUsers"},
		{"systemctl", "show", "--property", "Version"},
		{"logger", "-t", "root", "forged"},
	} {
		if out, stderr, code := c.lab.ExecAs(t, "slot01", words...); code != 0 {
			t.Fatalf("control: %q: exit %d, %q, %q", words, code, out, stderr)
		}
		// logger ends with 0 where there is no log.
		if stdout, stderr, code := c.sandbox(t, words...); code == 0 && words[0] != "logger" || stdout != "" {
			t.Errorf("%q: exit %d, %q, %q", words, code, stdout, stderr)
		}
	}
	if out := c.lab.MustExec(t, "journalctl", "-q", "-o", "cat", "-t", "root", "--grep", "^forged$"); strings.Count(out, "forged") != 1 {
		t.Errorf("the journal holds %q; one line is the control's", out)
	}
}

func (c chain) dropped(t *testing.T) {
	profile := "/srv/vs/state/browser-profile-projects"
	stdout, stderr, code := c.run(t, "sandbox", "run", "lab", "--slot", "slot01", "--dir", crew, "--read", crew, "--read", "/var/lib/dpkg", "--write", profile, "--", "sh", "-c", "pwd; ls "+profile+"; cat /var/lib/dpkg/status; touch x")
	for _, want := range []string{
		profile + " is not granted to a slot: it belongs to the app alone",
		"/var/lib/dpkg is not granted to a slot: it lies outside",
		"Read-only file system",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is not in %q", want, stderr)
		}
	}
	if stdout != crew+"\n" || code != 1 {
		t.Errorf("exit %d, %q", code, stdout)
	}
}

// A confined command may read no other process's environment, not even that of
// another command of its own account.
func (c chain) environments(t *testing.T) {
	o, other := c.held(t, "S32_CANARY=x exec sleep 300")
	defer o.end()
	workspace := c.lab.MustExec(t, "pgrep", "-n", "-u", "vs", "vs-workspace")
	for _, pid := range []string{other, workspace, "1"} {
		file := "/proc/" + pid + "/environ"
		if out, _, code := c.lab.Exec(t, "cat", file); code != 0 || pid == other && !strings.Contains(out, "S32_CANARY") {
			t.Fatalf("control: %s: exit %d, %q", file, code, out)
		}
		if stdout, _, code := c.sandbox(t, "cat", file); code == 0 || stdout != "" {
			t.Errorf("%s: exit %d, %q", file, code, stdout)
		}
	}
}

// held is a running sandbox whose script has begun.
type held struct {
	cmd  *exec.Cmd
	done chan error
	end  func()
}

// held starts script in the sandbox and returns when its process, whose last
// program is sleep 300, is there, with that pid.
func (c chain) held(t *testing.T, script string) (held, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cmd := c.command(ctx, "sandbox", "run", "lab", "--slot", "slot01", "--dir", crew, "--", "sh", "-c", script)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := held{cmd: cmd, done: make(chan error, 1)}
	go func() { h.done <- cmd.Wait() }()
	h.end = func() { cancel() }
	t.Cleanup(h.end)
	return h, c.await(t, "sleep 300", true)
}

// await waits until a process of slot01 with these words is there or gone.
func (c chain) await(t *testing.T, words string, there bool) (pid string) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		out, _, code := c.lab.Exec(t, "pgrep", "-u", "slot01", "-x", "-f", words)
		if (code == 0) == there {
			return strings.TrimSpace(out)
		}
	}
	t.Fatalf("%q: there is not %v", words, there)
	return ""
}

func (c chain) tmuxHole(t *testing.T) {
	// Confined, the slot plants a configuration that an unconfined tmux would run.
	planted := "run-shell 'touch " + home + "/owned'\n"
	if _, stderr, code := c.run(t, "sandbox", "run", "lab", "--slot", "slot01", "--dir", home, "--", "sh", "-c", `printf %s "$1" >.tmux.conf`, "sh", planted); code != 0 {
		t.Fatalf("plant: exit %d, %q", code, stderr)
	}
	defer c.tmux(t, "kill-server")
	if _, stderr, code := c.tmux(t, "new-session", "-d", "-s", "secret-session", "sleep 301"); code != 0 {
		t.Fatalf("tmux: exit %d, %q", code, stderr)
	}
	if _, _, code := c.lab.Exec(t, "test", "-e", home+"/owned"); code == 0 {
		t.Error("U-01: tmux read ~/.tmux.conf")
	}
	list := []string{"/usr/bin/tmux", "-S", sock, "list-sessions"}
	// Control: with Landlock alone, without a private run root, the server answers.
	text, err := json.Marshal(policy.Policy{ReadPaths: []string{tmuxDir}, WorkDir: tmuxDir, BrowserScoped: true})
	if err != nil {
		t.Fatal(err)
	}
	fd3 := string(text)
	launcher := c.lab.MustExec(t, "readlink", "-f", "/srv/vs/current/bin/video-studio-landlock-runner")
	control := slots.Request{
		Argv: append([]string{launcher, "--config", "/proc/self/fd/3", "--"}, list...), Cwd: tmuxDir,
		Env: []string{"PATH=/usr/bin:/bin", "TERM=dumb"}, UserNS: true, FD3: &fd3,
	}
	if stdout, stderr, code := c.slotctl(t, control); code != 0 || !strings.Contains(stdout, "secret-session") {
		t.Fatalf("control: exit %d, %q, %q", code, stdout, stderr)
	}
	if stdout, _, code := c.sandbox(t, list...); code == 0 || strings.Contains(stdout, "secret-session") {
		t.Errorf("exit %d, %q", code, stdout)
	}
	if stdout, _, code := c.sandbox(t, "ls", "-A", "/srv/vs/slots/run"); code != 0 || stdout != "" {
		t.Errorf("the run root: exit %d, %q", code, stdout)
	}
}

func (c chain) sudo(t *testing.T) {
	as := func(user string, words ...string) (stdout, stderr string, code int) {
		t.Helper()
		// A program that slotctl refuses: who reads its words got past sudo.
		req := fmt.Sprintf(`{"argv":["/usr/bin/id"],"cwd":%q,"env":[]}`, crew)
		return c.lab.Run(t, labtest.Cmd{User: user, Argv: append([]string{"/usr/bin/sudo", "-n"}, words...), Stdin: req})
	}
	if _, stderr, code := as("vs", "-u", "slot01", slotctl, "exec"); code != 126 || !strings.Contains(stderr, "slotctl: refused: /usr/bin/id is not an allowed program") {
		t.Fatalf("control: exit %d, %q", code, stderr)
	}
	for _, tt := range []struct {
		user  string
		words []string
	}{
		{"vs", []string{"-u", "slot01", "/usr/bin/id"}},
		{"vs", []string{"-u", "slot01", slotctl}},
		{"vs", []string{"-u", "slot01", slotctl, "status"}},
		{"vs", []string{"-u", "slot01", slotctl, "exec", "more"}},
		{"vs", []string{"-u", "slot01", slotctl, "exec", "--request-file", "/x"}},
		{"vs", []string{"-u", "root", slotctl, "exec"}},
		{"vs", []string{slotctl, "exec"}},
		{"vs", []string{"-u", "slot51", slotctl, "exec"}},
		{"slot01", []string{"-u", "slot02", slotctl, "exec"}},
	} {
		if stdout, stderr, code := as(tt.user, tt.words...); code != 1 || stdout != "" || !strings.Contains(stderr, "sudo: ") {
			t.Errorf("%s: sudo %q: exit %d, %q, %q", tt.user, tt.words, code, stdout, stderr)
		}
	}
	if _, stderr, code := as("vs", "-P", "-u", "slot01", slotctl, "exec"); code != 126 || !strings.Contains(stderr, "slotctl: refused: the groups of the caller came along") {
		t.Errorf("sudo -P: exit %d, %q", code, stderr)
	}
}

func (c chain) stops(t *testing.T) {
	deaf := `trap "" TERM; setsid sleep 302 & sleep 303 & sleep 300`
	gone := func() {
		t.Helper()
		for _, words := range []string{"sleep 300", "sleep 302", "sleep 303", slotctl + " exec"} {
			c.await(t, words, false)
		}
	}
	// The caller is killed: its lease ends, and everything with it.
	h, _ := c.held(t, deaf)
	if err := h.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-h.done
	gone()

	// The service tells sudo to end; sudo, slotctl and the group pass it on.
	h, _ = c.held(t, deaf)
	sudo := c.lab.MustExec(t, "pgrep", "-x", "sudo")
	if _, err := strconv.Atoi(sudo); err != nil {
		t.Fatalf("pids of sudo: %q", sudo)
	}
	if _, stderr, code := c.lab.ExecAs(t, "vs", "kill", "-TERM", sudo); code != 0 {
		t.Fatalf("kill: %q", stderr)
	}
	<-h.done
	if got := h.cmd.ProcessState.ExitCode(); got != 137 {
		t.Errorf("exit %d, want 137", got)
	}
	gone()

	// slotctl itself is killed: the program goes at once.
	h, _ = c.held(t, "exec sleep 300")
	c.lab.MustExec(t, "pkill", "-KILL", "-u", "slot01", "-x", filepath.Base(slotctl))
	<-h.done
	gone()
}
