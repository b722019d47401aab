package accounts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Process is what /proc says about one process. Groups are the supplementary
// groups that the kernel holds for it, which is what counts: the account
// database may have moved on since it started (case P-11).
type Process struct {
	PID    int
	Parent int    // 0 for one that has none
	Name   string // at most 15 bytes, as the process calls itself
	UID    uint32 // real
	GID    uint32 // real
	Groups []uint32
	Zombie bool   // it has ended, and its parent has not asked how
	Cgroup string // of cgroup2, or the systemd hierarchy; empty where it is hidden
}

// Lacks returns those of want that the process holds neither as a supplementary
// nor as its real group.
func (p Process) Lacks(want []uint32) []uint32 {
	var missing []uint32
	for _, gid := range want {
		if gid != p.GID && !slices.Contains(p.Groups, gid) {
			missing = append(missing, gid)
		}
	}
	return missing
}

// InUnit reports whether the process belongs to the systemd unit of that name,
// directly or through units below it.
func (p Process) InUnit(unit string) bool {
	return slices.Contains(strings.Split(p.Cgroup, "/"), unit)
}

// Processes returns the processes of uid, by proc(5) mounted at proc. One that
// ends while it is looked at is left out. They are in the order of their ids.
func Processes(proc string, uid uint32) ([]Process, error) {
	var found []Process
	err := each(proc, func(p Process) {
		if p.UID == uid {
			found = append(found, p)
		}
	})
	slices.SortFunc(found, func(a, b Process) int { return a.PID - b.PID })
	return found, err
}

// Count says how many running processes each user id has, by proc(5) mounted at proc.
func Count(proc string) (map[uint32]int, error) {
	count := map[uint32]int{}
	err := each(proc, func(p Process) {
		if !p.Zombie {
			count[p.UID]++
		}
	})
	return count, err
}

// each shows look every process that is still there when it is read.
func each(proc string, look func(Process)) error {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return fmt.Errorf("list the processes: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, err := ReadProcess(proc, pid)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		look(p)
	}
	return nil
}

// ReadProcess reads one process; fs.ErrNotExist when it is gone.
func ReadProcess(proc string, pid int) (Process, error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Process{}, gone(err)
	}
	p, err := parseStatus(status)
	if err != nil {
		return Process{}, fmt.Errorf("read %s/status: %w", dir, err)
	}
	p.PID = pid
	cgroup, err := os.ReadFile(filepath.Join(dir, "cgroup"))
	if err != nil {
		return p, gone(err)
	}
	p.Cgroup = parseCgroup(cgroup)
	return p, nil
}

// Gone reports whether a read of a file in /proc failed because the process has
// ended: before it was opened, or while it was read.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// gone makes errors.Is(err, fs.ErrNotExist) true for both.
func gone(err error) error {
	if Gone(err) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

func parseStatus(status []byte) (Process, error) {
	var p Process
	seen := 0
	for line := range bytes.Lines(status) {
		key, value, _ := strings.Cut(string(line), ":")
		fields := strings.Fields(value)
		switch key {
		case "Name":
			p.Name = strings.TrimSpace(value)
		case "State":
			p.Zombie = strings.HasPrefix(strings.TrimSpace(value), "Z")
		case "PPid":
			p.Parent, _ = strconv.Atoi(strings.TrimSpace(value))
		case "Uid", "Gid":
			if len(fields) == 0 {
				return p, fmt.Errorf("empty %s", key)
			}
			id, err := parseID(fields[0])
			if err != nil {
				return p, err
			}
			if key == "Uid" {
				p.UID = id
			} else {
				p.GID = id
			}
			seen++
		case "Groups":
			for _, f := range fields {
				id, err := parseID(f)
				if err != nil {
					return p, err
				}
				p.Groups = append(p.Groups, id)
			}
			seen++
		}
	}
	if seen != 3 {
		return p, errors.New("no Uid, Gid and Groups lines")
	}
	return p, nil
}

// parseCgroup returns the path of the unified hierarchy, else that of systemd's
// own one.
func parseCgroup(data []byte) string {
	var named string
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		if f[1] == "name=systemd" {
			named = f[2]
		}
		if f[0] == "0" && f[1] == "" && f[2] != "/" {
			return f[2]
		}
	}
	return named
}
