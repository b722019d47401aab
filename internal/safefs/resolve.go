package safefs

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is the kernel's own limit on links in one path.
const maxLinks = 40

// OpenDir opens the folder at an absolute, clean path. A link on the way, the
// last name included, is followed only where root owns both the link and the
// folder it stands in and nobody else may write that folder: then only root can
// have planted it. Any other link is an error that errors.Is(err, unix.ELOOP).
// The kernel's magic links in /proc are read as text like any other.
func OpenDir(abs string) (*Dir, error) {
	if !path.IsAbs(abs) || path.Clean(abs) != abs {
		return nil, fmt.Errorf("open %q: not a clean absolute path", abs)
	}
	r := resolver{path: abs}
	defer r.close()
	fd, err := r.resolve()
	if err != nil {
		return nil, err
	}
	return newDir(fd, abs), nil
}

// OpenParent opens the folder that the file at an absolute path stands in, and
// returns the file's name in it.
func OpenParent(abs string) (*Dir, string, error) {
	name := path.Base(abs)
	if err := checkName(name); err != nil || !path.IsAbs(abs) || path.Clean(abs) != abs {
		return nil, "", fmt.Errorf("open the folder of %q: not a clean absolute path", abs)
	}
	dir, err := OpenDir(path.Dir(abs))
	return dir, name, err
}

// resolver walks a path name by name. The stack holds the folders from the root
// down to where it stands, so that ".." in a link's target is the true parent.
type resolver struct {
	path  string
	stack []int
	links int
}

func (r *resolver) close() {
	for _, fd := range r.stack {
		unix.Close(fd)
	}
}

func (r *resolver) resolve() (int, error) {
	if err := r.root(); err != nil {
		return -1, err
	}
	todo := split(r.path)
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			if top := len(r.stack) - 1; top > 0 {
				unix.Close(r.stack[top])
				r.stack = r.stack[:top]
			}
			continue
		}
		fd, err := openat2(r.top(), name, unix.O_PATH|unix.O_NOFOLLOW, 0, unix.RESOLVE_NO_MAGICLINKS)
		if err != nil {
			return -1, fail("open", r.path, err)
		}
		target, err := r.link(fd)
		if err != nil {
			unix.Close(fd)
			return -1, fail("open", r.path, err)
		}
		if target == "" {
			r.stack = append(r.stack, fd)
			continue
		}
		unix.Close(fd)
		if path.IsAbs(target) {
			if err := r.root(); err != nil {
				return -1, err
			}
		}
		todo = append(split(target), todo...)
	}
	fd, err := openat2(r.top(), ".", unix.O_RDONLY|unix.O_DIRECTORY, 0, beneath)
	if err != nil {
		return -1, fail("open", r.path, err)
	}
	return fd, nil
}

// root starts over at "/".
func (r *resolver) root() error {
	r.close()
	r.stack = r.stack[:0]
	fd, err := openat2(unix.AT_FDCWD, "/", unix.O_PATH|unix.O_DIRECTORY, 0, 0)
	if err != nil {
		return fail("open", "/", err)
	}
	r.stack = append(r.stack, fd)
	return nil
}

func (r *resolver) top() int { return r.stack[len(r.stack)-1] }

// link is the target of the link fd, which stands in the top folder; empty
// where fd is no link; ELOOP where it is not to be followed.
func (r *resolver) link(fd int) (string, error) {
	var st, parent unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", nil
	}
	if err := unix.Fstat(r.top(), &parent); err != nil {
		return "", err
	}
	r.links++
	// With an ACL the group bits are its mask, so they cover named users too.
	if r.links > maxLinks || st.Uid != 0 || parent.Uid != 0 || parent.Mode&0o022 != 0 {
		return "", unix.ELOOP
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	if n == 0 || n == len(buf) {
		return "", errors.New("a link without a usable target")
	}
	return string(buf[:n]), nil
}

// split returns the names of a path; "" and "." are dropped.
func split(p string) []string {
	var names []string
	for _, name := range strings.Split(p, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}
