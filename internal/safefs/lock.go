package safefs

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Holder is who has a lock: the lock file's content, one line.
type Holder struct {
	PID   int
	Verb  string // one word
	Since time.Time
}

func (h Holder) line() string {
	return fmt.Sprintf("%d %s %s\n", h.PID, h.Verb, h.Since.UTC().Format(time.RFC3339))
}

// parseHolder reads a lock file's content; ok is false where it says nothing
// (the holder took the lock just now, or is another program).
func parseHolder(line string) (h Holder, ok bool) {
	var since string
	if n, _ := fmt.Sscanf(line, "%d %s %s", &h.PID, &h.Verb, &since); n != 3 {
		return Holder{}, false
	}
	var err error
	h.Since, err = time.Parse(time.RFC3339, since)
	return h, err == nil
}

// LockedError says that another run holds the lock, and who it is.
type LockedError struct {
	Path   string
	Holder Holder // zero where the file does not say
	Waited time.Duration
}

func (e *LockedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is held by ", e.Path)
	if e.Holder == (Holder{}) {
		b.WriteString("another run that has not said who it is")
	} else {
		fmt.Fprintf(&b, "%s (pid %d) since %s", e.Holder.Verb, e.Holder.PID, e.Holder.Since.Format(time.RFC3339))
	}
	if e.Waited > 0 {
		fmt.Fprintf(&b, "; waited %s", e.Waited)
	}
	return b.String()
}

// Lock is a held lock. The kernel gives it back when the process ends, however
// it ends.
type Lock struct {
	file *os.File
}

// Acquire takes the flock on the file at an absolute path, made with mode 0600
// where it is missing, and writes holder into it. The file is a stable one that
// nobody renames over and nobody unlinks (case B28); its folder must be there.
// It waits at most wait (0: not at all), then answers *LockedError. While it
// waits, a thread sits in flock(2), so that waiters are served in their order;
// after a vain wait that thread stays until its turn, and gives the lock back at
// once.
func Acquire(ctx context.Context, abs string, holder Holder, wait time.Duration) (*Lock, error) {
	dir, name, err := OpenParent(abs)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	file, err := openLock(dir, name)
	if err != nil {
		return nil, err
	}
	if err := flock(ctx, file, wait); err != nil {
		return nil, err
	}
	l := &Lock{file: file}
	if err := l.write(holder.line()); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// Update writes anew who holds the lock, when its holder came to another step.
func (l *Lock) Update(holder Holder) error { return l.write(holder.line()) }

// Release gives the lock back and empties the file.
func (l *Lock) Release() error {
	err := l.write("")
	if cerr := l.file.Close(); err == nil {
		err = cerr
	}
	return err
}

func (l *Lock) write(line string) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(line), 0)
	return err
}

func openLock(dir *Dir, name string) (*os.File, error) {
	fd, err := dir.openat2(name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	if err != nil {
		return nil, err
	}
	n := &Node{fd: fd, path: path.Join(dir.path, name)}
	st, err := n.Stat()
	if err == nil && !st.IsRegular() {
		err = fmt.Errorf("lock %s: a %s, not a regular file", n.path, st.Kind())
	}
	if err == nil {
		_, err = n.Ensure(Exact(os.Geteuid(), os.Getegid(), 0o600))
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	return os.NewFile(uintptr(fd), n.path), nil
}

// flock closes file unless it took the lock.
func flock(ctx context.Context, file *os.File, wait time.Duration) error {
	fd := int(file.Fd())
	err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return nil
	}
	if err != unix.EWOULDBLOCK {
		file.Close()
		return fail("lock", file.Name(), err)
	}
	if wait <= 0 {
		defer file.Close()
		return locked(file, 0)
	}
	done := make(chan error, 1)
	go func() {
		err := unix.EINTR
		for err == unix.EINTR {
			err, _ = unix.Flock(fd, unix.LOCK_EX).(unix.Errno)
		}
		if err != 0 {
			done <- fail("lock", file.Name(), err)
			return
		}
		done <- nil
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err = <-done:
		if err != nil {
			file.Close()
		}
		return err
	case <-timer.C:
		err = locked(file, wait)
	case <-ctx.Done():
		err = ctx.Err()
	}
	go func() {
		<-done
		file.Close()
	}()
	return err
}

func locked(file *os.File, waited time.Duration) error {
	line, _ := io.ReadAll(io.NewSectionReader(file, 0, 256))
	holder, _ := parseHolder(string(line))
	return &LockedError{Path: file.Name(), Holder: holder, Waited: waited}
}
