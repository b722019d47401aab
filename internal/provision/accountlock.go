package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// accountLock is what lckpwdf(3) locks; systemd-sysusers waits for it for ever.
const accountLock = "/etc/.pwd.lock"

// leftovers are the temporary files of systemd-sysusers in /etc. While nobody
// has the account lock they belong to nobody.
func (r *run) leftovers() ([]string, error) {
	etc, err := safefs.OpenDir(r.sys.at("/etc"))
	if err != nil {
		return nil, err
	}
	defer etc.Close()
	names, err := etc.Names()
	return slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc([]string{".#passwd", ".#group", ".#shadow", ".#gshadow"}, func(temp string) bool { return strings.HasPrefix(name, temp) })
	}), err
}

// clearLeftovers waits until no other program writes the account files, so that
// systemd-sysusers does not hang on one that never ends, and removes what a
// killed one left.
func (r *run) clearLeftovers(ctx context.Context) error {
	unlock, err := lockAccountFiles(ctx, r.sys.at(accountLock))
	if err != nil {
		return err
	}
	defer unlock()
	names, err := r.leftovers()
	if err != nil || len(names) == 0 {
		return err
	}
	etc, err := safefs.OpenDir(r.sys.at("/etc"))
	if err != nil {
		return err
	}
	defer etc.Close()
	for _, name := range names {
		if err := etc.Remove(name); err != nil {
			return err
		}
	}
	return etc.Sync()
}

// lockAccountFiles takes the lock as lckpwdf does, by a lock of the open file
// (F_OFD_SETLK), which excludes its POSIX lock and is the descriptor's own.
func lockAccountFiles(ctx context.Context, path string) (unlock func(), err error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "open the account lock", Path: path, Err: err}
	}
	until := time.Now().Add(lockPatience)
	for {
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock)
		if err == nil {
			return func() { unix.Close(fd) }, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) || time.Now().After(until) {
			err = report.Coded(report.ExitLocked, "%s is held by %s; waited %s: %w", path, holderOf(fd), lockPatience, err)
		} else if err = pause(ctx); err == nil {
			continue
		}
		unix.Close(fd)
		return nil, err
	}
}

func holderOf(fd int) string {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lock); err != nil || lock.Pid <= 0 {
		return "another program"
	}
	return fmt.Sprintf("pid %d", lock.Pid)
}
