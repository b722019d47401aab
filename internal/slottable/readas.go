package slottable

import (
	"fmt"
	"io"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/safefs"
)

// readAs reads a file the way an account would: on a thread of its own whose
// file system identity (setfsuid(2)) is the account's. The process itself stays
// root's, so the account cannot signal it. The thread ends with the call.
func readAs(who ids, groups []int, path string, limit int64) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread goes with the goroutine
		var r result
		if r.err = becomeOnFiles(who, groups); r.err == nil {
			r.data, r.err = readRegular(path, limit)
		}
		done <- r
	}()
	r := <-done
	return r.data, r.err
}

// becomeOnFiles changes the calling thread alone, hence the raw calls: those of
// the libraries change every thread.
func becomeOnFiles(who ids, groups []int) error {
	gids := make([]uint32, 0, len(groups)+1)
	for _, g := range groups {
		gids = append(gids, uint32(g))
	}
	var list unsafe.Pointer
	if len(gids) > 0 {
		list = unsafe.Pointer(&gids[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(gids)), uintptr(list), 0); errno != 0 {
		return fmt.Errorf("take the groups of the account: %w", errno)
	}
	for _, c := range []struct {
		call uintptr
		id   int
	}{{unix.SYS_SETFSGID, who.gid}, {unix.SYS_SETFSUID, who.uid}} {
		// These two answer with the former id, whatever happens; an id of -1
		// changes nothing and tells the current one.
		unix.RawSyscall(c.call, uintptr(c.id), 0, 0)
		if now, _, _ := unix.RawSyscall(c.call, ^uintptr(0), 0, 0); int(now) != c.id {
			return fmt.Errorf("take the id %d of the account: the kernel refuses", c.id)
		}
	}
	return nil
}

func readRegular(path string, limit int64) ([]byte, error) {
	f, err := safefs.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
