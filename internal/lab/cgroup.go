package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// execGroup is the cgroup, below the lab's, of the commands that enter it from
// outside; the lab's systemd leaves groups alone that it did not make.
const execGroup = "lab.exec"

// cgroup2 finds where the machine has its version 2 hierarchy: alone, or beside
// version 1.
func cgroup2() (string, error) {
	for _, path := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return path, nil
		}
	}
	return "", errors.New("no cgroup2 at /sys/fs/cgroup or /sys/fs/cgroup/unified; mount one: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")
}

// delegates says whether the hierarchy was mounted with nsdelegate: then no
// process may enter a cgroup of a namespace it came to from outside.
func delegates(mount string) (bool, error) {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 5 && fields[4] == mount && slices.Contains(strings.Split(fields[len(fields)-1], ","), "nsdelegate") {
			return true, nil
		}
	}
	return false, lines.Err()
}

// cgroup is the lab's group of the version 2 hierarchy.
func (l *Lab) cgroup() (string, error) {
	mount, err := cgroup2()
	if err != nil {
		return "", err
	}
	return filepath.Join(mount, "agentworks-lab-"+l.Name), nil
}

// removeCgroup ends whatever still runs in the lab's group and removes the
// group, leaves first. It needs no record of the lab, only its name.
func (l *Lab) removeCgroup(ctx context.Context) error {
	top, err := l.cgroup()
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		left, err := emptyCgroup(top)
		if err != nil {
			return fmt.Errorf("remove the cgroup of lab %s: %w", l.Name, err)
		}
		if !left {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove the cgroup of lab %s: %s is still in use: %w", l.Name, top, ctx.Err())
		case <-again.C:
		}
	}
}

// emptyCgroup kills what runs below top once and removes every group that can
// be removed; left says whether one is still there.
func emptyCgroup(top string) (left bool, err error) {
	err = os.WriteFile(filepath.Join(top, "cgroup.kill"), []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var groups []string
	err = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a group that went while we looked
		}
		if err == nil && e.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	if err != nil {
		return false, err
	}
	slices.Reverse(groups) // a parent comes before its children
	for _, group := range groups {
		switch err := unix.Rmdir(group); {
		case err == nil, errors.Is(err, unix.ENOENT):
		case errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOTEMPTY):
			left = true
		default:
			return false, fmt.Errorf("remove %s: %w", group, err)
		}
	}
	return left, nil
}
