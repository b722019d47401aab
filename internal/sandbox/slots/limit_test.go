package slots_test

import (
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"agentworks-deploy/internal/sandbox/slots"
)

// TestS26AForkBombIsCapped: a command that forks without end stops at the
// slot's bound, raising its own limit does not help, and the slot's other
// processes and other slots run on.
func TestS26AForkBombIsCapped(t *testing.T) {
	w := newWorld(t)
	w.config.MaxProcesses = 64
	w.writeConfig(0o644)
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
