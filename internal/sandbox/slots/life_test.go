package slots_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentworks-deploy/internal/sandbox/slots"
)

// running is a slotctl whose command has said that it is there.
type running struct {
	cmd *exec.Cmd
	out *os.File
}

// start starts a command that prints "ready" when it is where the test needs it.
func (w *world) start(c call) *running {
	w.t.Helper()
	r, out, err := os.Pipe()
	w.must(err)
	cmd := w.command(c)
	cmd.Stdout = out
	w.must(cmd.Start())
	out.Close()
	w.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		r.Close()
	})
	w.must(r.SetReadDeadline(time.Now().Add(20 * time.Second)))
	waitFor(w.t, r, "ready\n")
	return &running{cmd, r}
}

// end waits for slotctl and for everybody who holds the command's output.
func (r *running) end(t *testing.T) (exit int, rest string) {
	t.Helper()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.out); err != nil {
		t.Fatalf("the command's output stays open: %v", err)
	}
	r.cmd.Wait()
	return r.cmd.ProcessState.ExitCode(), b.String()
}

func TestS23StopIsOneTermThenKill(t *testing.T) {
	w := newWorld(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		r := w.start(call{stdin: w.sh("trap 'echo got TERM; exit 9' TERM; echo ready; while :; do sleep 0.02; done")})
		w.must(r.cmd.Process.Signal(sig))
		if exit, rest := r.end(t); exit != 9 || rest != "got TERM\n" {
			t.Errorf("%v: exit %d, %q", sig, exit, rest)
		}
	}
	// Without a handler the signal is the exit code.
	r := w.start(call{stdin: w.sh("echo ready; exec sleep 60")})
	w.must(r.cmd.Process.Signal(syscall.SIGTERM))
	if exit, _ := r.end(t); exit != 143 {
		t.Errorf("exit %d, want 143", exit)
	}
	// A deaf one is killed, however often the caller asks.
	r = w.start(call{stdin: w.sh("trap 'echo TERM' TERM; echo ready; while :; do sleep 0.05; done")})
	w.must(r.cmd.Process.Signal(syscall.SIGTERM))
	waitFor(t, r.out, "TERM\n")
	w.must(r.cmd.Process.Signal(syscall.SIGTERM))
	w.must(r.cmd.Process.Signal(syscall.SIGHUP))
	if exit, rest := r.end(t); exit != 137 || rest != "" {
		t.Errorf("deaf: exit %d, %q", exit, rest)
	}
}

// A stop reaches what left the process group; the output pipe closes only when
// the last of them is gone (case S22).
func TestS22StopEndsEveryDescendant(t *testing.T) {
	w := newWorld(t)
	r := w.start(call{stdin: w.sh(`setsid sh -c 'trap "" TERM; setsid sleep 60 & sleep 61 & echo ready; wait' & trap "" TERM; wait; sleep 62`)})
	w.must(r.cmd.Process.Signal(syscall.SIGTERM))
	if exit, _ := r.end(t); exit != 137 {
		t.Errorf("exit %d, want 137", exit)
	}
}

func TestNormalEndLeavesBackgroundJobs(t *testing.T) {
	w := newWorld(t)
	r := w.start(call{stdin: w.sh("sh -c 'echo ready; read x <&7; echo still here' 7<>" + w.pipe() + " & exit 5")})
	r.cmd.Wait()
	if got := r.cmd.ProcessState.ExitCode(); got != 5 {
		t.Errorf("exit %d, want 5", got)
	}
	w.must(os.WriteFile(w.pipe(), []byte("\n"), 0o600))
	if _, rest := r.end(t); rest != "still here\n" {
		t.Errorf("the job said %q", rest)
	}
}

// pipe is a named pipe that slot01 may use.
func (w *world) pipe() string {
	w.t.Helper()
	p := w.in("slots/state/slot01/pipe")
	if _, err := os.Lstat(p); err != nil {
		w.must(mkfifo(p, slot01))
		w.must(os.Chmod(p, 0o660))
	}
	return p
}

func TestS20CommandEndsWithItsCallers(t *testing.T) {
	w := newWorld(t)
	sleeper := w.sh("echo ready; exec sleep 60")
	// slotctl is killed: the kernel kills the program.
	r := w.start(call{stdin: sleeper})
	w.must(r.cmd.Process.Kill())
	r.end(t)
	// slotctl's parent is killed: slotctl gets TERM and stops the program. The end
	// of the output shows both.
	parent := filepath.Join(w.root, "parent")
	w.file(parent, "#!/bin/sh\n\"$@\"\nexit $?\n", 0, 0, 0o755)
	r = w.start(call{stdin: sleeper, parent: parent})
	w.must(r.cmd.Process.Kill())
	r.end(t)
}

// Whenever slotctl is killed, from its first instruction on, nothing that it
// started stays: the output pipe ends.
func TestS20KilledAtAnyMoment(t *testing.T) {
	w := newWorld(t)
	sleeper := w.request(func(r *slots.Request) { r.UserNS = true }, "/bin/sh", "-c", "exec sleep 60")
	for range 200 {
		r, out, err := os.Pipe()
		w.must(err)
		cmd := w.command(call{stdin: sleeper})
		cmd.Stdout = out
		w.must(cmd.Start())
		out.Close()
		time.Sleep(time.Duration(rand.IntN(25_000)) * time.Microsecond) // the moment is what is tried
		w.must(cmd.Process.Kill())
		w.must(r.SetReadDeadline(time.Now().Add(10 * time.Second)))
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Fatalf("somebody outlived slotctl: %v", err)
		}
		cmd.Wait()
		r.Close()
	}
}

func TestMaxCommandsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.config.MaxCommands = 2
	w.writeConfig(0o644)
	hold := w.sh("echo ready; exec sleep 60")
	first, second := w.start(call{stdin: hold}), w.start(call{stdin: hold})
	w.want(w.run(call{stdin: w.sh("exit 0")}), 126, "slot01 already runs 2 commands at once")
	// Another slot has its own count.
	w.want(w.run(call{stdin: w.sh("exit 0"), as: as(slot02, groups(slot02, shared))}), 0, "")
	w.must(first.cmd.Process.Kill())
	first.end(t)
	w.want(w.run(call{stdin: w.sh("exit 0")}), 0, "")
	_ = second
}

func TestL07TmuxAndChmod(t *testing.T) {
	w := newWorld(t)
	sock := w.in("slots/run/slot01/tmux.sock")
	home := w.in("slots/home/slot01")
	tmux := func(words ...string) string {
		return w.request(func(r *slots.Request) {
			r.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + home, "SHELL=/bin/sh", "LANG=C.UTF-8"}
		}, append([]string{"/usr/bin/tmux"}, words...)...)
	}
	// The slot's own configuration would run a program unconfined (case U-01).
	w.file(filepath.Join(home, ".tmux.conf"), "run-shell 'touch "+w.in("slots/state/slot01/owned")+"'\n", slot01, slot01, 0o600)
	t.Cleanup(func() { w.run(call{stdin: tmux("-S", sock, "kill-server")}) })
	w.want(w.run(call{stdin: tmux("-S", sock, "-u", "new-session", "-d", "-s", "s", "sleep 60")}), 0, "")
	r := w.run(call{stdin: tmux("-S", sock, "list-sessions", "-F", "#{session_name}")})
	if r.stdout != "s\n" {
		t.Errorf("sessions: %+v", r)
	}
	if _, err := os.Lstat(w.in("slots/state/slot01/owned")); err == nil {
		t.Error("~/.tmux.conf was read")
	}
	w.want(w.run(call{stdin: w.request(nil, "/usr/bin/chmod", "660", sock)}), 0, "")
	st, err := os.Stat(sock)
	w.must(err)
	if st.Mode().Perm() != 0o660 {
		t.Errorf("socket mode %v", st.Mode())
	}

	for _, words := range [][]string{
		{}, {"new-session"}, {"-S", w.in("slots/run/slot02/tmux.sock"), "ls"}, {"-S", sock + "x", "ls"}, {"-S" + sock, "ls"},
		{"-f", "/x", "-S", sock, "ls"}, {"-S", sock, "-f", "/x", "ls"}, {"-S", sock, "-f/x", "ls"}, {"-S", sock, "-uf", "/x", "ls"},
		{"-S", sock, "-S", "/tmp/other", "ls"}, {"-S", sock, "-L", "other", "ls"}, {"-S", sock, "-2vL", "other"},
		{"-S", sock, "-c", "true", "-f", "/x"}, {"-S", sock, "-T", "256", "-f", "/x"}, {"-S", sock, "-x"},
	} {
		if r := w.run(call{stdin: tmux(words...)}); r.exit != 126 {
			t.Errorf("tmux %q: %+v", words, r)
		}
	}
	// Behind the command word, -f and -S are that command's own.
	w.want(w.run(call{stdin: tmux("-S", sock, "list-sessions", "-f", "1")}), 0, "")
	for _, words := range [][]string{{"666", sock}, {"660", home}, {"660", sock, home}, {"-R", "660", sock}, {sock}, {}} {
		if r := w.run(call{stdin: w.request(nil, append([]string{"/usr/bin/chmod"}, words...)...)}); r.exit != 126 {
			t.Errorf("chmod %q: %+v", words, r)
		}
	}
	for _, shell := range []string{"", "/usr/sbin/nologin", "sh", "/nowhere/sh", "/etc/passwd", "/bin/../bin/sh", "/usr/bin/tmux", "/bin/false"} {
		bad := w.request(func(r *slots.Request) { r.Env = []string{"SHELL=" + shell} }, "/usr/bin/tmux", "-S", sock, "ls")
		w.want(w.run(call{stdin: bad}), 126, "SHELL")
	}
	w.want(w.run(call{stdin: w.request(nil, "/usr/bin/tmux", "-S", sock, "ls")}), 126, "SHELL")
}

// The environment of a tmux server is the request's, so no secret of the service
// can stay in it (case V-05).
func TestV05TmuxServerHoldsNoSecret(t *testing.T) {
	w := newWorld(t)
	sock := w.in("slots/run/slot01/tmux.sock")
	tmux := func(words ...string) call {
		return call{
			env: []string{"AUTH_SECRET=a", "SUPABASE_X=b", "VAULT_Y=c"},
			stdin: w.request(func(r *slots.Request) { r.Env = []string{"PATH=/usr/bin:/bin", "SHELL=/bin/sh"} },
				append([]string{"/usr/bin/tmux", "-S", sock}, words...)...),
		}
	}
	t.Cleanup(func() { w.run(tmux("kill-server")) })
	w.want(w.run(tmux("new-session", "-d", "sleep 60")), 0, "")
	r := w.run(tmux("show-environment", "-g"))
	if strings.Contains(r.stdout, "SECRET") || strings.Contains(r.stdout, "SUPABASE") || strings.Contains(r.stdout, "VAULT") || !strings.Contains(r.stdout, "PATH=") {
		t.Errorf("environment: %q", r.stdout)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(w.run(tmux("display-message", "-p", "#{pid}")).stdout))
	w.must(err)
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	w.must(err)
	if strings.Contains(string(env), "SUPABASE") {
		t.Errorf("server's environment: %q", env)
	}
}
