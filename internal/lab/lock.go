package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
)

// lockWait is how long a verb waits for another run on the same lab.
const lockWait = 10 * time.Second

// fileLock is a held flock. The kernel gives it back when the process dies.
type fileLock struct{ file *os.File }

// errLocked says who holds a lock, as the holder wrote it.
type errLocked struct{ path, holder string }

func (e *errLocked) Error() string {
	return fmt.Sprintf("%s is held by %s", e.path, e.holder)
}

// tryLock takes the lock file at path or says who holds it. A holder may remove
// the file while it holds it, so the name is looked at again afterwards.
func tryLock(path, verb string) (*fileLock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			holder, _ := os.ReadFile(path)
			file.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, &errLocked{path, strings.TrimSpace(string(holder))}
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		held, err := file.Stat()
		if err != nil {
			file.Close()
			return nil, err
		}
		if named, err := os.Stat(path); err != nil || !os.SameFile(held, named) {
			file.Close()
			continue
		}
		if err := file.Truncate(0); err != nil {
			file.Close()
			return nil, err
		}
		_, err = fmt.Fprintf(file, "pid %d, %s, since %s\n", os.Getpid(), verb, time.Now().UTC().Format(time.RFC3339))
		if err != nil {
			file.Close()
			return nil, err
		}
		return &fileLock{file}, nil
	}
}

// waitLock is tryLock until ctx ends; waiting is called once with the holder.
func waitLock(ctx context.Context, path, verb string, waiting func(holder string)) (*fileLock, error) {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for first := true; ; first = false {
		lock, err := tryLock(path, verb)
		var locked *errLocked
		if !errors.As(err, &locked) {
			return lock, err
		}
		if first {
			waiting(locked.holder)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(locked, ctx.Err())
		case <-again.C:
		}
	}
}

// lock takes the lab's lock, which covers up, down, reset and the reference:
// the kernel lets two mounts share an upper folder and only warns.
func (l *Lab) lock(ctx context.Context, verb string) (*fileLock, error) {
	if os.Geteuid() != 0 {
		return nil, report.Coded(report.ExitUsage, "not root: lab %s needs root: run this with sudo", verb)
	}
	wait, stop := context.WithTimeout(ctx, lockWait)
	defer stop()
	lock, err := waitLock(wait, l.lockPath(), "lab "+verb, func(string) {})
	var locked *errLocked
	if errors.As(err, &locked) && ctx.Err() == nil {
		return nil, report.Coded(report.ExitLocked, "lab %s: another run holds it: %s", l.Name, locked.holder)
	}
	if err != nil {
		return nil, fmt.Errorf("lock lab %s: %w", l.Name, err)
	}
	return lock, nil
}

func (l *Lab) lockPath() string { return filepath.Join(l.store.Labs, "."+l.Name+".lock") }

// remove takes the lock file away and gives the lock back.
func (f *fileLock) remove() error {
	err := os.Remove(f.file.Name())
	f.release()
	return err
}

func (f *fileLock) release() { f.file.Close() }
