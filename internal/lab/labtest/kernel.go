package labtest

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Settle waits until the kernel's clock has left what was just made behind, so
// that a later change of it has another time.
func Settle() {
	var made, now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &made)
	for now.Nano() <= made.Nano() {
		_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now)
		runtime.Gosched()
	}
}

// WithMounts runs f with each key of mounts covered by its value, for f alone. F
// runs on a goroutine of its own, so it must not end the test.
func WithMounts(t testing.TB, mounts map[string]string, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread's mounts end with it
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		for at, what := range mounts {
			if err == nil {
				err = unix.Mount(what, at, "", unix.MS_BIND, "")
			}
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("labtest: mount: %v", err)
	}
}
