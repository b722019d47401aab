package slots_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentworks-deploy/internal/sandbox/slots"
)

// TestS26AForkBombIsCapped: a command that forks without end stops at the
// slot's bound, raising its own limit does not help, and the slot's other
// processes and other slots run on.
func TestS26AForkBombIsCapped(t *testing.T) {
	w := newWorld(t)
	w.config.MaxProcesses = 64
	w.writeConfig(0o644)
	reaped(t, slot01)
	foreign := make([]*exec.Cmd, 20)
	for i := range foreign {
		c := exec.Command("/bin/sleep", "60")
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: slot01, Gid: slot01}}
		w.must(c.Start())
		defer func() {
			if err := c.Process.Kill(); err != nil {
				t.Errorf("a foreign process had ended: %v", err)
			}
			_ = c.Wait()
		}()
		foreign[i] = c
	}
	// The bomb says how far it got with a builtin, since it can start nothing more.
	const bomb = `ulimit -S -p "$(ulimit -H -p)" || exit; trap 'echo "$i ready"; while :; do read x </proc/self/stat; done' EXIT
i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); done 2>/dev/null`
	r := w.start(call{stdin: w.request(func(r *slots.Request) { r.UserNS = true }, "/bin/sh", "-c", bomb)})
	got := w.run(call{stdin: w.sh("exit 0")})
	w.want(got, 126, "slot01 already has 64 processes and threads")
	w.want(w.run(call{stdin: w.sh("exit 0"), as: as(slot02, groups(slot02, shared))}), 0, "")
	w.must(r.cmd.Process.Signal(syscall.SIGTERM))
	_, _ = io.Copy(io.Discard, r.out)
	_ = r.cmd.Wait()
	if got := w.run(call{stdin: w.sh("ulimit -S -p")}); strings.TrimSpace(got.stdout) != "64" {
		t.Errorf("after the bomb: %+v", got)
	}
}

// reaped waits until nothing of uid is left, zombies included: the kernel counts
// what other tests killed until init has reaped it.
func reaped(t *testing.T, uid uint32) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		left := 0
		entries, err := os.ReadDir("/proc")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if fi, err := os.Stat("/proc/" + e.Name()); err == nil && fi.Sys().(*syscall.Stat_t).Uid == uid {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d processes of uid %d are left", left, uid)
		}
		time.Sleep(20 * time.Millisecond) // init offers no event to wait for
	}
}
