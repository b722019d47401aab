package safefs

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// inPrivateMounts runs do on a thread with a mount namespace of its own. The
// thread is never unlocked, so it and its mounts end with the goroutine.
func inPrivateMounts(t *testing.T, do func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			return do()
		}()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
