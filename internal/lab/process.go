package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotUp is the answer for a lab that is down or does not exist.
var ErrNotUp = errors.New("not up")

// running is <lab>/running.json: the lab's first process. A pid alone may be
// somebody else's by now, and ticks since boot mean nothing after a reboot.
type running struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, field 22 of /proc/<pid>/stat
	Boot  string `json:"boot"`  // the kernel's boot id
}

// describe names the live process pid so that it can be known again.
func describe(pid int) (running, error) {
	start, _, err := processStat(pid)
	if err != nil {
		return running{}, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return running{}, err
	}
	return running{PID: pid, Start: start, Boot: string(bytes.TrimSpace(boot))}, nil
}

// ProcessStart is when a process of this machine started, in clock ticks since
// boot: with its pid a name that no later process has.
func ProcessStart(pid int) (uint64, error) {
	start, _, err := processStat(pid)
	return start, err
}

// processStat returns the start time and the state letter of a process.
func processStat(pid int) (start uint64, state byte, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, 0, err
	}
	// The name in parentheses may hold anything, so count from its end.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(fields))
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return start, fields[0][0], err
}

// process is the lab's living first process, held so that its pid cannot become
// another's.
type process struct {
	PID int
	fd  int
}

// process finds the lab's first process; ErrNotUp when there is none.
func (l *Lab) process() (*process, error) {
	var known running
	err := readJSON(l.path("running.json"), &known)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("lab %s is %w", l.Name, ErrNotUp)
	}
	if err != nil {
		return nil, l.needsRoot(err)
	}
	fd, err := unix.PidfdOpen(known.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("lab %s is %w", l.Name, ErrNotUp)
	}
	if err != nil {
		return nil, fmt.Errorf("open the first process of lab %s (pid %d): %w", l.Name, known.PID, err)
	}
	p := &process{PID: known.PID, fd: fd}
	// A first process becomes a zombie only after everything in its pid
	// namespace is gone.
	now, err := describe(known.PID)
	_, state, errState := processStat(known.PID)
	if err != nil || errState != nil || now != known || state == 'Z' || state == 'X' {
		p.Close()
		return nil, fmt.Errorf("lab %s is %w", l.Name, ErrNotUp)
	}
	return p, nil
}

func (p *process) Close() { unix.Close(p.fd) }

func (p *process) signal(sig unix.Signal) error {
	err := unix.PidfdSendSignal(p.fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// isSystemd says whether the process has built the lab and become its systemd.
func (p *process) isSystemd() bool {
	name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "comm"))
	return err == nil && string(bytes.TrimSpace(name)) == "systemd"
}

// becomesSystemd waits at most that long for it.
func (p *process) becomesSystemd(within time.Duration) bool {
	for deadline := time.Now().Add(within); !p.isSystemd(); {
		if p.ended(10*time.Millisecond) || time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// ended waits at most that long for the process to end and says whether it did.
func (p *process) ended(within time.Duration) bool {
	deadline := time.Now().Add(within)
	for {
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, max(0, int(time.Until(deadline).Milliseconds())))
		if n == 1 {
			// Whose child it is takes its zombie away; a program that starts
			// and ends labs is its own undertaker.
			_ = unix.Waitid(unix.P_PIDFD, p.fd, nil, unix.WEXITED|unix.WNOHANG, nil)
			return true
		}
		if !errors.Is(err, unix.EINTR) {
			return false
		}
	}
}
