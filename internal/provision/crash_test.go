package provision

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLabKilledRunsAreFinishedByTheNext: at 50 moments spread over a run, half
// of the time the command line dies and half of the time the half on the host;
// then the verb runs again, and a full scan equals that of an uninterrupted run.
func TestLabKilledRunsAreFinishedByTheNext(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"command line", "half"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			h := newLabHost(t)
			h.Sh(keepState)
			began := time.Now()
			h.provision()
			took := time.Since(began)
			want := h.everything()
			const kills = 25
			for i := 0; i < kills; {
				h.Sh(forgetProvision)
				moment := took * time.Duration(i+1) / kills
				if h.kill(t, moment, victim == "half") {
					i++
				} else { // the run was over
					took = took * 9 / 10
				}
				h.again(t)
				if diff := want.Diff(h.everything()); len(diff) > 0 {
					t.Fatalf("kill %d, after %s of %s: %s", i, moment, took, strings.Join(diff, "\n"))
				}
			}
		})
	}
}

// keepState and forgetProvision bring the lab back to what it was before its
// first provisioning.
const keepState = `mkdir /root/kept; cp -a /etc/passwd /etc/group /etc/shadow /etc/gshadow /root/kept; cp -a /srv/vs/data /root/kept/data`

const forgetProvision = `
uid=$(id -u vs)
systemctl stop user@$uid.service; rm -f /var/lib/systemd/linger/vs
systemctl stop user-runtime-dir@$uid.service
cp -a /root/kept/passwd /root/kept/group /root/kept/shadow /root/kept/gshadow /etc/
rm -rf /srv/vs/slots /srv/vs/releases /srv/vs/logs /srv/vs/data /usr/local/libexec /etc/agentworks /etc/sudoers.d/agentworks-slots /run/agentworks-deploy /var/lib/agentworks-deploy
rm -f /etc/*.agentworks-new /etc/sudoers.d/.*.agentworks-new /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow-
cp -a /root/kept/data /srv/vs/data`

// kill starts a run and kills it, or its half, that long after its start; it
// says whether there was still something to kill.
func (h labHost) kill(t *testing.T, moment time.Duration, half bool) bool {
	cmd := h.Command("022", "provision", "lab")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() { <-ended }()
	pid := cmd.Process.Pid
	for half && pid == cmd.Process.Pid {
		select {
		case <-ended:
			return false
		default:
		}
		if found := halfOf(pid); found != 0 {
			pid = found
		}
	}
	select {
	case <-ended:
		return false
	case <-time.After(moment):
	}
	return syscall.Kill(pid, syscall.SIGKILL) == nil
}

// halfOf finds the on-host half among a process's descendants.
func halfOf(parent int) int {
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, task := range tasks {
		more, _ := os.ReadFile(task)
		children = append(append(children, ' '), more...)
	}
	for _, word := range bytes.Fields(children) {
		pid, err := strconv.Atoi(string(word))
		if err != nil {
			continue
		}
		if words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); bytes.Contains(words, []byte("\x00on-host\x00")) && !bytes.HasPrefix(words, []byte("/bin/sh")) {
			return pid
		}
		if found := halfOf(pid); found != 0 {
			return found
		}
	}
	return 0
}

// again runs the verb until the half that lost its caller has given the lock back.
func (h labHost) again(t *testing.T) {
	t.Helper()
	until := time.Now().Add(10 * time.Second)
	for {
		out, errs, code := h.Call("provision", "lab")
		if code == 0 {
			return
		}
		if code != 4 || time.Now().After(until) {
			t.Fatalf("exit %d\n%s%s", code, out, errs)
		}
	}
}
