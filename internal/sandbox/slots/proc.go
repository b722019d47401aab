package slots

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is one entry of the process table.
type process struct {
	pid, ppid int
	started   uint64 // clock ticks since boot; orders processes
}

// before orders processes by age.
func (p process) before(q process) bool {
	return p.started < q.started || p.started == q.started && p.pid < q.pid
}

// processTable is a proc file system.
type processTable string

// read gives one process; an error means that it is gone.
func (t processTable) read(pid int) (process, error) {
	data, err := os.ReadFile(filepath.Join(string(t), strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, err
	}
	// The name stands in parentheses and may hold anything, so count from its end.
	_, after, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	f := strings.Fields(after)
	if len(f) < 20 {
		return process{}, fmt.Errorf("read process %d: short stat line", pid)
	}
	ppid, err := strconv.Atoi(f[1])
	if err != nil {
		return process{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	started, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return process{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return process{pid: pid, ppid: ppid, started: started}, nil
}

func (t processTable) pids() ([]int, error) {
	d, err := os.Open(string(t))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// admitted says whether this process is among the first max slotctl processes
// of its account, by age: whoever comes late knows it without a lock, and two
// that come together are not both turned away.
func (t processTable) admitted(max int) (bool, error) {
	self, err := t.read(os.Getpid())
	if err != nil {
		return false, err
	}
	siblings, err := t.sameProgram()
	if err != nil {
		return false, err
	}
	older := 0
	for _, p := range siblings {
		// A child between fork and exec still looks like its slotctl.
		if _, child := siblings[p.ppid]; !child && p.before(self) {
			older++
		}
	}
	return older < max, nil
}

// sameProgram finds the processes of this account that run this very file.
func (t processTable) sameProgram() (map[int]process, error) {
	var own, st unix.Stat_t
	if err := unix.Stat("/proc/self/exe", &own); err != nil {
		return nil, fmt.Errorf("stat slotctl's own program: %w", err)
	}
	pids, err := t.pids()
	if err != nil {
		return nil, err
	}
	found := map[int]process{}
	uid := uint32(os.Geteuid())
	for _, pid := range pids {
		dir := filepath.Join(string(t), strconv.Itoa(pid))
		if unix.Stat(dir, &st) != nil || st.Uid != uid {
			continue
		}
		if unix.Stat(filepath.Join(dir, "exe"), &st) != nil || st.Dev != own.Dev || st.Ino != own.Ino {
			continue
		}
		if p, err := t.read(pid); err == nil {
			found[pid] = p
		}
	}
	return found, nil
}

// descendants lists what stems from root, parents before children.
func (t processTable) descendants(root int) ([]process, error) {
	pids, err := t.pids()
	if err != nil {
		return nil, err
	}
	children := map[int][]process{}
	for _, pid := range pids {
		if p, err := t.read(pid); err == nil {
			children[p.ppid] = append(children[p.ppid], p)
		}
	}
	var out []process
	next := children[root]
	for len(next) > 0 {
		p := next[0]
		next = append(next[1:], children[p.pid]...)
		out = append(out, p)
	}
	return out, nil
}

// signal sends sig to p and to no later process of the same number (case S25):
// the descriptor is taken first, then the process is looked at again.
func (t processTable) signal(p process, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	now, err := t.read(p.pid)
	if err != nil {
		return err
	}
	if now.started != p.started {
		return errors.New("the process is gone")
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}
