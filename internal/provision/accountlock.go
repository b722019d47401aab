package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
)

// accountLock is what lckpwdf(3) locks; systemd-sysusers waits for it for ever.
const accountLock = "/etc/.pwd.lock"

// accountFilesFree waits until no other program writes the account files, so
// that systemd-sysusers does not hang on one that never ends.
func (r *run) accountFilesFree(ctx context.Context) error {
	unlock, err := lockAccountFiles(ctx, r.sys.at(accountLock))
	if err != nil {
		return err
	}
	unlock()
	return nil
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
