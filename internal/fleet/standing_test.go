package fleet_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A release that lies on the host goes live by its id, over any channel, and
// nothing is sent.
func TestDeployByID(t *testing.T) {
	o := ready(t)
	s := takeSeat(t, o.lab)
	s.host(t, "over-ssh", sshRoot, sshVs)
	s.host(t, "alone", ssmByID, ssmByID)
	if _, stderr, code := s.run(t, "provision", "alone"); code != 0 { // a large program does not go in pieces
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	var ids []string
	for _, page := range []string{"by id: one", "by id: two"} {
		o.must(t, "deploy", "lab", "--provision=false", "--release", o.release(t, page))
		ids = append(ids, o.current(t))
	}
	launcher := "/srv/vs/releases/" + ids[0] + "/bin/video-studio-landlock-runner"
	o.lab.MustExec(t, "chmod", "0700", "/srv/vs/releases/"+ids[0], launcher)
	o.must(t, "deploy", "lab", "--provision=false", "--plan", "--release", ids[0])
	if now := o.current(t); now != ids[1] {
		t.Errorf("a plan switched to %s", now)
	}
	stdout := o.must(t, "deploy", "lab", "--provision=false", "--release", ids[0])
	if o.current(t) != ids[0] || !strings.Contains(stdout, "CHANGED  modes") || !strings.Contains(stdout, "deployed: "+ids[0]+" is live on lab") {
		t.Errorf("%s is live\n%s", o.current(t), stdout)
	}
	for i, host := range []string{"over-ssh", "alone"} {
		id := ids[1-i]
		stdout, stderr, code := s.run(t, "deploy", host, "--release", id)
		if code != 0 || o.current(t) != id || !strings.Contains(stdout, "slot self-test: ") || strings.Contains(stderr, "pieces") {
			t.Errorf("%s: exit %d, %s is live\n%s%s", host, code, o.current(t), stdout, stderr)
		}
		if _, stderr, code := s.run(t, "deploy", host, "--release", "vs-00000000-20200101000000"); code != 2 || !strings.Contains(stderr, host+" has "+id+", ") {
			t.Errorf("%s: an unknown one: exit %d\n%s", host, code, stderr)
		}
		s.leftovers(t)
	}
	// Not what its manifest lists: refused, and what is live stays.
	o.lab.MustExec(t, "/bin/sh", "-c", `printf x >>"$0"`, "/srv/vs/releases/"+ids[1]+"/frontend/index.html")
	if _, stderr, code := o.run(t, "deploy", "lab", "--provision=false", "--release", ids[1]); code != 1 || !strings.Contains(stderr, "frontend/index.html: ") || o.current(t) != ids[0] {
		t.Errorf("exit %d, %s is live\n%s", code, o.current(t), stderr)
	}
}

// The same content under other times is the release that is there.
func TestDeployOfTheSameContentChangesNothing(t *testing.T) {
	o := ready(t)
	dir := o.release(t, "same")
	o.must(t, "deploy", "lab", "--release", dir)
	id, pid := o.current(t), o.lab.MustExec(t, "pgrep", "-u", "vs", "vs-workspace")
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(filepath.Join(dir, "bin/vs-agent"), later, later); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--plan"}, nil} {
		stdout := o.must(t, append([]string{"deploy", "lab", "--release", dir}, args...)...)
		if !strings.Contains(stdout, "deploy: nothing to do") || !strings.Contains(stdout, "has the content of "+id) {
			t.Errorf("%v:\n%s", args, stdout)
		}
	}
	if now := o.lab.MustExec(t, "pgrep", "-u", "vs", "vs-workspace"); o.current(t) != id || now != pid {
		t.Errorf("%s is live, of process %s", o.current(t), now)
	}
}

// ended starts a deploy whose health never comes, has it ended by end once the
// new release is live, and returns what it says last.
func ended(t *testing.T, o operator, cmd *exec.Cmd, end func(cmd *exec.Cmd)) (last string, code int) {
	t.Helper()
	o.lab.WriteFile(t, "/srv/vs/state/sample-health", "sick\n", 0o644)
	before := o.current(t)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	go func() {
		last := ""
		for lines := bufio.NewScanner(said); lines.Scan(); {
			last = lines.Text()
		}
		done <- last
	}()
	until(t, time.Minute, "the new release is live", func() bool { return o.current(t) != before })
	end(cmd)
	last = <-done
	_ = cmd.Wait() // its code is judged
	// A half without a stream does not notice, and finishes what it is at.
	o.lab.MustExec(t, "rm", "-f", "/srv/vs/state/sample-health")
	until(t, time.Minute, "the half ends", func() bool {
		_, _, code := o.lab.Exec(t, "pgrep", "-u", "vs", "-f", " on-host")
		return code == 1
	})
	return last, cmd.ProcessState.ExitCode()
}

// Whatever ends a deploy behind the switch, the last line says what runs and what
// to type, or that this side cannot know and how to see.
func TestDeployEndedAfterTheSwitchSaysWhatRuns(t *testing.T) {
	o := ready(t)
	s := takeSeat(t, o.lab)
	s.host(t, "over-ssh", sshRoot, sshVs)
	s.host(t, "alone", ssmByID, ssmByID)
	if _, stderr, code := s.run(t, "provision", "alone"); code != 0 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	interrupt := func(cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGINT) }
	onHost := func(signal string) func(*exec.Cmd) {
		return func(*exec.Cmd) { o.lab.MustExec(t, "pkill", "-"+signal, "-u", "vs", "-f", " on-host") }
	}
	for _, tt := range []struct {
		name, host string
		end        func(*exec.Cmd)
		code       int
		known      bool
	}{
		{"interrupted", "lab", interrupt, 130, true},
		{"interrupted over ssh", "over-ssh", interrupt, 130, true},
		{"interrupted over ssm", "alone", interrupt, 130, false},
		{"half told to end", "over-ssh", onHost("TERM"), 130, true},
		{"half killed", "lab", onHost("KILL"), 3, false},
		{"half killed over ssm", "alone", onHost("KILL"), 3, false},
		{"connection cut", "over-ssh", func(*exec.Cmd) { o.lab.MustExec(t, "ip", "link", "set", "lab0", "down") }, 3, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, dir := o.current(t), o.release(t, tt.name)
			args := []string{"deploy", tt.host, "--provision=false", "--release", dir}
			cmd := s.command(context.Background(), args...)
			if tt.host == "lab" {
				cmd = o.command(context.Background(), args...)
			}
			last, code := ended(t, o, cmd, tt.end)
			now, typed := o.current(t), "agentworks-deploy deploy "+tt.host+" --release "
			want := []string{"release " + now + " is live on " + tt.host + " but unproven: ", " was cut off: ", "; to go on: " + typed + now + "; ", "; to go back: " + typed + before}
			if !tt.known {
				want = []string{"whether release " + now + " is live on " + tt.host + " now is not known from here; to see: " + typed + dir + " --plan; to go on: " + typed + dir}
			}
			for _, w := range want {
				if !strings.Contains(last, w) {
					t.Errorf("no %q in\n%s", w, last)
				}
			}
			if code != tt.code || !strings.HasSuffix(last, want[len(want)-1]) {
				t.Errorf("exit %d\n%s", code, last)
			}
		})
	}
	// What was cut off is gone on with.
	o.must(t, "deploy", "lab", "--provision=false", "--release", o.current(t))
}
