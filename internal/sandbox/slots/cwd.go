package slots

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// enterCwd makes dir the working folder when it lies, links resolved, in one of
// the allowed roots, and returns its resolved path. A way through a magic link
// (/proc/self/fd/3, /proc/1/cwd) is refused (case S29), and the folder that was
// compared is the one entered: one descriptor serves both.
func enterCwd(dir string, allowed []string) (string, error) {
	fd, err := openDir(dir)
	if err != nil {
		return "", fmt.Errorf("working folder %s: %w", dir, err)
	}
	defer unix.Close(fd)
	resolved, err := pathOf(fd)
	if err != nil {
		return "", fmt.Errorf("working folder %s: %w", dir, err)
	}
	if !inRoots(resolved, allowed) {
		return "", fmt.Errorf("working folder %s is outside the allowed folders", dir)
	}
	if err := unix.Fchdir(fd); err != nil {
		return "", fmt.Errorf("working folder %s: %w", dir, err)
	}
	if now, err := unix.Getwd(); err != nil || now != resolved {
		return "", fmt.Errorf("working folder %s is outside the allowed folders: it moved while it was entered", dir)
	}
	return resolved, nil
}

// inRoots compares resolved with every root after resolving that root. A root
// that does not exist or cannot be reached by this account allows nothing.
func inRoots(resolved string, roots []string) bool {
	for _, root := range roots {
		fd, err := openDir(root)
		if err != nil {
			continue
		}
		r, err := pathOf(fd)
		unix.Close(fd)
		if err == nil && within(resolved, r) {
			return true
		}
	}
	return false
}

func openDir(dir string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, dir, &how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// pathOf is the kernel's name for an open folder.
func pathOf(fd int) (string, error) {
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
}

// within says whether p is root or lies below it; both are clean.
func within(p, root string) bool {
	return p == root || root == "/" || strings.HasPrefix(p, root+"/")
}
