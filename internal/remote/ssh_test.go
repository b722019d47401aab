package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

// fakeSSH is a program that notes its words, one a line and a blank line after
// each call, and then runs body with the remote command as its last word. It
// stands for OpenSSH where only what we tell it matters; the real one is tried
// against a real sshd in the lab.
func fakeSSH(t *testing.T, way hosts.SSHChannel, body string) (c *sshChannel, calls func() []string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	program := filepath.Join(dir, "ssh")
	script := fmt.Sprintf("#!/bin/bash\nprintf '%%s\\n' \"$@\" '' >>%q\nfor last; do :; done\nmaster=; for w; do case $w in -M|exit) master=1;; esac; done\n%s\n", log, body)
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	c = newSSH(way, "")
	c.program = program
	t.Cleanup(func() { c.Close() })
	return c, func() []string {
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(string(data), "\n\n"), "\n\n")
	}
}

const runsLocally = `[ -n "$master" ] && exit 0; exec /bin/sh -c "$last"`

func TestX03SSHKeyOnlyWhereItExists(t *testing.T) {
	key := filepath.Join(t.TempDir(), "id")
	for _, exists := range []bool{false, true} {
		if exists {
			if err := os.WriteFile(key, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c, calls := fakeSSH(t, hosts.SSHChannel{Host: "h", User: "u", Port: 2222, Key: key}, runsLocally)
		exit, err := c.Run(context.Background(), Cmd{Argv: []string{"/bin/sh", "-c", "exit 7"}})
		if exit != 7 || err != nil {
			t.Fatalf("exit %d, %v; want the remote command's 7", exit, err)
		}
		for _, call := range calls() {
			if got := strings.Contains(call, "-i\n"+key+"\n-o\nIdentitiesOnly=yes"); got != exists {
				t.Errorf("key exists %v, named %v:\n%s", exists, got, call)
			}
			if strings.Contains(call, "IdentitiesOnly") != exists || !strings.Contains(call, "BatchMode=yes") || !strings.Contains(call, "-l\nu\n-p\n2222") || !strings.Contains(call, "--\nh") {
				t.Errorf("words:\n%s", call)
			}
		}
		if n := len(calls()); n != 2 {
			t.Errorf("%d calls, want the shared connection and the command", n)
		}
	}
}

func TestX04SSHWordsAreLiteral(t *testing.T) {
	c, _ := fakeSSH(t, hosts.SSHChannel{Host: "h"}, runsLocally)
	word := "a'b \"$(exit 9)\" `id` \\ \n; exit 3 #ü*"
	var out bytes.Buffer
	exit, err := c.Run(context.Background(), Cmd{Argv: []string{"/bin/sh", "-c", `printf '%s|' "$@"; cat`, "sh", word, ""}, Stdin: strings.NewReader("input"), Stdout: &out})
	if err != nil || exit != 0 || out.String() != word+"||input" {
		t.Errorf("exit %d, %v, %q", exit, err, out.String())
	}
}

func TestSSHFailuresAreOneLine(t *testing.T) {
	for _, tt := range []struct{ name, says, want string }{
		{"refused key", "u@h: Permission denied (publickey).", "the login is refused"},
		{"many keys", "Received disconnect from 10.0.0.1: 2: Too many authentication failures", "too many keys"},
		{"unknown host key", "No ED25519 host key is known for h and you have requested strict checking.\nHost key verification failed.", "its host key is unknown"},
		{"unknown name", "ssh: Could not resolve hostname h: Name or service not known", "the name is not known"},
		{"refused", "ssh: connect to host h port 22: Connection refused", "nothing listens there"},
		{"silent", "ssh: connect to host h port 22: Connection timed out", "it does not answer"},
		{"another", "kex_exchange_identification: read: Connection reset by peer", "Connection reset by peer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, calls := fakeSSH(t, hosts.SSHChannel{Host: "h"}, fmt.Sprintf("echo %q >&2; exit 255", tt.says))
			for range 2 {
				_, err := c.Run(context.Background(), Cmd{Argv: []string{"/bin/true"}})
				if report.CodeOf(err) != report.ExitUnfinished || err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%v, want one line with %q, exit 3", err, tt.want)
				}
			}
			if n := len(calls()); n != 1 {
				t.Errorf("%d tries to connect, want 1", n)
			}
		})
	}
	t.Run("no ssh program", func(t *testing.T) {
		c := newSSH(hosts.SSHChannel{Host: "h"}, "")
		c.program = filepath.Join(t.TempDir(), "absent")
		defer c.Close()
		if _, err := c.Run(context.Background(), Cmd{Argv: []string{"/bin/true"}}); report.CodeOf(err) != report.ExitUsage {
			t.Errorf("%v, want exit 2", err)
		}
	})
	t.Run("lost while running", func(t *testing.T) {
		c, _ := fakeSSH(t, hosts.SSHChannel{Host: "h"}, `[ -n "$master" ] && exit 0; echo "Timeout, server h not responding." >&2; exit 255`)
		if exit, err := c.Run(context.Background(), Cmd{Argv: []string{"/bin/true"}}); report.CodeOf(err) != report.ExitUnfinished || !errors.As(err, new(*LostError)) {
			t.Errorf("exit %d, %v", exit, err)
		}
	})
}

// A remote side that never closes its output ends at the deadline (case B56).
func TestB56SSHEndsAtTheDeadline(t *testing.T) {
	c, _ := fakeSSH(t, hosts.SSHChannel{Host: "h"}, `[ -n "$master" ] && exit 0; read -r _; exit 0`)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := c.Run(ctx, Cmd{Argv: []string{"/bin/true"}, Stdin: neverEnds{}})
	if lost, ok := errors.AsType[*LostError](err); !ok || lost.Err != context.DeadlineExceeded {
		t.Errorf("%v, want the deadline", err)
	}
}

type neverEnds struct{}

func (neverEnds) Read([]byte) (int, error) { select {} }

// A service verb over root's login becomes the service account first (case B55).
func TestB55SSHDropsRoot(t *testing.T) {
	c := newSSH(hosts.SSHChannel{Host: "h", User: "root"}, "vs")
	program := filepath.Join(t.TempDir(), "ssh")
	if err := os.WriteFile(program, []byte("#!/bin/bash\nfor last; do :; done\necho \"$last\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.program = program
	defer c.Close()
	var out bytes.Buffer
	if _, err := c.Run(context.Background(), Cmd{Argv: []string{"/bin/true"}, Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if want := "'/usr/bin/setpriv' '--reuid=vs' '--regid=vs' '--init-groups' '--reset-env' '--' '/bin/true'\n"; out.String() != want {
		t.Errorf("remote command %q, want %q", out.String(), want)
	}
}
