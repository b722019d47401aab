package fleet_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentworks-deploy/internal/remote/ssmtest"
)

// Each fault of a channel is one line that says what to do, with its exit code.
func TestChannelFaultsAreOneLine(t *testing.T) {
	s := takeSeat(t, ready(t).lab)
	config, err := os.ReadFile(s.dir + "/.ssh/config")
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.dir+"/.ssh/config", string(config)+fmt.Sprintf(`
Host stranger
	HostName %[1]s
	Port 2222
	IdentitiesOnly yes
	IdentityFile %[2]s/stranger
Host newkey
	HostName %[1]s
	Port 2222
	HostKeyAlias newkey
	IdentityFile %[2]s/key
Host closed
	HostName %[1]s
	Port 2
Host silent
	HostName 198.51.100.1
`, labAddress, s.dir), 0o600)
	// The lab forwards nothing, so packets to that network are never answered.
	must(t, "nsenter", "-t", s.pid, "-n", "ip", "route", "add", "198.51.100.0/24", "via", labAddress)
	ssm := func(more string) string {
		return "{ssm: {region: " + region + ", " + more + "instance: {id: " + instance + "}}}"
	}
	write(t, s.dir+"/aws", "[profile known]\nregion = "+region+"\n", 0o600)
	for _, tt := range []struct {
		name, admin string
		faults      ssmtest.Faults
		env         []string
		want        string
		code        int
	}{
		{"refused key", "{ssh: {host: stranger, user: root}}", ssmtest.Faults{}, nil, "the login is refused", 3},
		{"unknown host key", "{ssh: {host: newkey, user: root}}", ssmtest.Faults{}, nil, "its host key is unknown or has changed", 3},
		{"nothing listens", "{ssh: {host: closed, user: root}}", ssmtest.Faults{}, nil, "nothing listens there", 3},
		{"silent", "{ssh: {host: silent, user: root}}", ssmtest.Faults{}, nil, "it does not answer", 3},
		{"unknown name", "{ssh: {host: nowhere.invalid, user: root}}", ssmtest.Faults{}, nil, "the name is not known", 3},
		{"offline", ssmByID, ssmtest.Faults{Offline: map[string]bool{instance: true}}, nil, "start amazon-ssm-agent there", 3},
		{"expired", ssmByID, ssmtest.Faults{Expired: true}, nil, "log in again (aws sso login", 3},
		{"no credentials", ssmByID, ssmtest.Faults{}, []string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="}, "no AWS credentials", 3},
		{"no profile", ssm("profile: UNKNOWN, "), ssmtest.Faults{}, nil, `the AWS profile "UNKNOWN" does not exist`, 2},
		{"wrong region", strings.Replace(ssmByID, region, "eu-north-1", 1), ssmtest.Faults{}, nil, "check the region", 3},
		{"not delivered", ssmByID, ssmtest.Faults{Details: map[string]string{instance: "DeliveryTimedOut"}}, nil, "nothing ran", 3},
		{"ran out of time", ssmByID, ssmtest.Faults{Details: map[string]string{instance: "ExecutionTimedOut"}}, nil, "the outcome of command", 3},
		{"cut", ssmByID, ssmtest.Faults{Stdout: func(_, out string) string { return out[:len(out)/2] }}, nil, "it was cut", 3},
		{"altered", ssmByID, ssmtest.Faults{Stdout: func(_, out string) string { return strings.Replace(out, "A", "B", 1) }}, nil, "arrived changed", 3},
		{"empty", ssmByID, ssmtest.Faults{Stdout: func(string, string) string { return "" }}, nil, "no answer", 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.host(t, "faulty", tt.admin, "{local: {}}")
			s.ssm.Play(tt.faults)
			before := s.env
			s.env = append(append([]string(nil), s.env...), tt.env...)
			defer func() { s.env = before }()
			stdout, stderr, code := s.run(t, "slots", "status", "faulty")
			if code != tt.code || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "agentworks-deploy: ") != 1 {
				t.Errorf("exit %d, want %d and one line with %q\n%s%s", code, tt.code, tt.want, stdout, stderr)
			}
		})
	}
}

// What a person types stays one literal word on both sides, or is refused.
func TestX04WordsAreNeverRun(t *testing.T) {
	o := ready(t)
	s := takeSeat(t, o.lab)
	s.host(t, "over-ssh", sshRoot, sshVs)
	s.host(t, "over-ssm", ssmByID, sshVs)
	marker := filepath.Join(s.dir, "ran")
	for _, host := range []string{"over-ssh", "over-ssm"} {
		for _, word := range []string{
			"$(touch " + marker + ")", "`touch " + marker + "`", "x; touch " + marker, "x\ntouch " + marker, "'; touch " + marker + "; '", `"; touch ` + marker + `; "`, "x y", "-x", "", "\x00", "ü",
		} {
			if strings.Contains(word, "\x00") {
				continue // no command line can carry it
			}
			_, stderr, code := s.run(t, "slots", "assign", host, "--", word)
			if code != 2 {
				t.Errorf("%s: id %q: exit %d\n%s", host, word, code, stderr)
			}
			_, stderr, code = s.run(t, "--set", "paths.docs="+word, "slots", "status", host)
			if code != 2 && word != "" {
				t.Errorf("%s: docs %q: exit %d\n%s", host, word, code, stderr)
			}
		}
		// In a word of a command they arrive as they are.
		odd := "a'b \"$(touch " + marker + ")\" `touch " + marker + "` \\ \n*"
		if host == "over-ssh" {
			o.must(t, "slots", "assign", "lab", "literal", "slot09")
			stdout, stderr, code := s.run(t, "sandbox", "run", host, "--slot", "slot09", "--dir", "/srv/vs/slots/state/slot09", "--", "/usr/bin/printf", "%s", odd)
			if code != 0 || stdout != odd {
				t.Errorf("exit %d: %q, want %q\n%s", code, stdout, odd, stderr)
			}
			o.must(t, "slots", "release", "lab", "literal")
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a word was run on this side")
	}
	if _, _, code := o.lab.Exec(t, "test", "-e", marker); code == 0 {
		t.Error("a word was run on the host")
	}
}

// long starts a command in the lab that lasts, over ssh, and waits for it.
func long(t *testing.T, s *seat) (stderr *bytes.Buffer, wait func() int, signal func(syscall.Signal)) {
	t.Helper()
	cmd := s.command(context.Background(), "sandbox", "run", "over-ssh", "--slot", "slot11", "--dir", "/srv/vs/slots/state/slot11", "--", "/usr/bin/sleep", "612")
	stderr = &bytes.Buffer{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, 30*time.Second, "the command runs", func() bool { _, _, code := s.lab.Exec(t, "pgrep", "-f", "sleep 612"); return code == 0 })
	return stderr, func() int { _ = cmd.Wait(); return cmd.ProcessState.ExitCode() }, func(sig syscall.Signal) { _ = cmd.Process.Signal(sig) }
}

func until(t *testing.T, within time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	begun := time.Now()
	for !ok() {
		if time.Since(begun) > within {
			t.Fatalf("%s: not within %s", what, within)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(begun)
}

func TestInterruptedOverSSH(t *testing.T) {
	s := takeSeat(t, ready(t).lab)
	s.host(t, "over-ssh", sshRoot, sshVs)
	stderr, wait, signal := long(t, s)
	signal(syscall.SIGINT)
	if code := wait(); code != 130 && code != 125 {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	until(t, 6*time.Second, "the half ends", func() bool { _, _, code := s.lab.Exec(t, "pgrep", "-f", "sleep 612"); return code == 1 })
}

// A cut connection is noticed on both ends: neither hangs.
func TestCutConnectionIsNoticedOnBothEnds(t *testing.T) {
	s := takeSeat(t, ready(t).lab)
	s.host(t, "over-ssh", sshRoot, sshVs)
	stderr, wait, _ := long(t, s)
	s.lab.MustExec(t, "ip", "link", "set", "lab0", "down")
	begun := time.Now()
	code := wait()
	t.Logf("the caller noticed after %s", time.Since(begun).Round(time.Second))
	if code == 0 || !strings.Contains(stderr.String(), "connection was lost") && !strings.Contains(stderr.String(), "not responding") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	until(t, 25*time.Second, "the half ends", func() bool { _, _, code := s.lab.Exec(t, "pgrep", "-f", "sleep 612"); return code == 1 })
	t.Logf("the half had ended after %s", time.Since(begun).Round(time.Second))
}

func TestInterruptedOverSSM(t *testing.T) {
	s := takeSeat(t, ready(t).lab)
	s.host(t, "over-ssm", ssmByID, sshVs)
	s.ssm.Play(ssmtest.Faults{Stay: map[string]bool{instance: true}})
	cmd := s.command(context.Background(), "slots", "status", "over-ssm")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, 20*time.Second, "the command is sent", func() bool { return s.ssm.Calls("GetCommandInvocation") > 0 })
	_ = cmd.Process.Signal(syscall.SIGINT)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || s.ssm.Calls("CancelCommand") != 1 || !strings.Contains(stderr.String(), "was cancelled") {
		t.Errorf("exit %d, %d cancels\n%s", code, s.ssm.Calls("CancelCommand"), stderr.String())
	}
	s.ssm.Wait()
}
