package slotcheck

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// janitor is a small process of its own that puts a file's traces away when it
// is told to, or when this process is gone, however it went: an audit that is
// killed leaves nothing either.
type janitor struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// hireJanitor starts one; script, with words as $1 and on, is what it will do.
// There $told is empty where this process went without a word.
func hireJanitor(script string, words ...string) (*janitor, error) {
	cmd := exec.Command("/bin/sh", append([]string{"-c", "told=$(cat)\n" + script, "slotcheck-janitor"}, words...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a signal to this process's group is not for it
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the clean-up: %w", err)
	}
	return &janitor{cmd: cmd, stdin: stdin}, nil
}

// clean has the work done and waits for it.
func (j *janitor) clean() {
	_, _ = io.WriteString(j.stdin, "now\n")
	j.stdin.Close()
	_ = j.cmd.Wait() // what it could not do was told by the check, or is not ours
}
