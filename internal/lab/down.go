package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// poweroff is systemd's signal for a clean end, SIGRTMIN+4 with the C
	// library's SIGRTMIN.
	poweroff     = unix.Signal(34 + 4)
	poweroffWait = 15 * time.Second
	killWait     = 15 * time.Second
)

// Down ends the lab and keeps its files. changed is false when it was down.
func (l *Lab) Down(ctx context.Context) (changed bool, err error) {
	lock, err := l.lock(ctx, "down")
	if err != nil {
		return false, err
	}
	if changed, err = l.end(ctx, true); err == nil {
		if _, gone := os.Lstat(l.Dir()); errors.Is(gone, fs.ErrNotExist) {
			return changed, lock.remove() // there is no such lab: its lock is all that this run made
		}
	}
	lock.release()
	return changed, err
}

// Reset ends the lab and removes its files, whatever state it is in: no record
// of it is needed. changed is false when nothing was there.
func (l *Lab) Reset(ctx context.Context) (changed bool, err error) {
	lock, err := l.lock(ctx, "reset")
	if err != nil {
		return false, err
	}
	changed, err = l.clear(ctx)
	if err != nil {
		lock.release()
		return changed, err
	}
	return changed, lock.remove()
}

func (l *Lab) clear(ctx context.Context) (changed bool, err error) {
	if changed, err = l.end(ctx, false); err != nil {
		return changed, err
	}
	if _, err := os.Lstat(l.Dir()); err == nil {
		changed = true
	}
	if err := l.removeFiles(); err != nil {
		return changed, err
	}
	// A making of the root file system that was killed; one at work keeps its lock.
	cache, err := tryLock(l.store.cacheLock(), "lab reset")
	var locked *errLocked
	if errors.As(err, &locked) {
		return changed, nil
	}
	if err != nil {
		return changed, err
	}
	defer cache.release()
	return changed, l.store.dropUnfinished()
}

// end stops the lab's first process, and with it everything in its pid
// namespace, then its cgroup.
func (l *Lab) end(ctx context.Context, clean bool) (changed bool, err error) {
	p, err := l.process()
	if err != nil && !errors.Is(err, ErrNotUp) {
		// An unreadable record; the cgroup holds everything that matters.
		return false, l.removeCgroup(ctx)
	}
	if err == nil {
		defer p.Close()
		changed = true
		if !clean || p.signal(poweroff) != nil || !p.ended(poweroffWait) {
			if err := p.signal(unix.SIGKILL); err != nil {
				return true, fmt.Errorf("end lab %s (pid %d): %w", l.Name, p.PID, err)
			}
			if !p.ended(killWait) {
				return true, fmt.Errorf("end lab %s: pid %d is still there after %s", l.Name, p.PID, killWait)
			}
		}
	}
	if err := l.removeCgroup(ctx); err != nil {
		return changed, err
	}
	if err := os.Remove(l.path("running.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return changed, err
	}
	return changed, nil
}

// removing is where a lab's files lie while they are removed: half a lab must
// never look like one.
func (l *Lab) removing() string { return filepath.Join(l.store.Labs, "."+l.Name+".removing") }

func (l *Lab) removeFiles() error {
	if err := l.dropRemoved(); err != nil {
		return err
	}
	if err := os.Rename(l.Dir(), l.removing()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return l.dropRemoved()
}

// dropRemoved ends a removal, also one that was interrupted.
func (l *Lab) dropRemoved() error {
	err := os.RemoveAll(l.removing())
	if errors.Is(err, fs.ErrPermission) {
		// Root is refused only for immutable and append-only files.
		if err := clearAttributes(l.removing()); err != nil {
			return err
		}
		err = os.RemoveAll(l.removing())
	}
	if err != nil {
		return fmt.Errorf("remove the files of lab %s: %w", l.Name, err)
	}
	return nil
}

// Flags of chattr(1) as ioctl_iflags(2) gives them; x/sys has no names for them.
const immutable, appendOnly = 0x10, 0x20

// clearAttributes makes every file and folder below top removable, following no
// link on the way.
func clearAttributes(top string) error {
	root, err := os.OpenRoot(top)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !(e.IsDir() || e.Type().IsRegular()) {
			return err
		}
		file, err := root.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		flags, err := unix.IoctlGetUint32(int(file.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil || flags&(immutable|appendOnly) == 0 {
			return nil // a file system without attributes has none to clear
		}
		return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, int(flags&^(immutable|appendOnly)))
	})
}
