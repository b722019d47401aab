package slots

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links the kernel follows in one path.
const maxLinks = 40

// unreachable says which component keeps this account from starting the program
// at file, or "" where none does. The kernel decides each step (faccessat2 with
// AT_EACCESS), so ACLs count (case S-14); links are taken apart, because the
// folder that refuses is often one that only the link's target passes.
func unreachable(file, account string) string {
	rest := strings.Split(strings.Trim(file, "/"), "/")
	at, links := "/", 0
	for {
		if err := access(at, unix.X_OK); err != nil {
			return describe(at, "not traversable for "+account, err)
		}
		next := path.Join(at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(next)
		switch {
		case err == nil:
			if links++; links > maxLinks {
				return next + " leads through too many links"
			}
			if path.IsAbs(target) {
				at = "/"
			}
			rest = append(strings.Split(strings.Trim(target, "/"), "/"), rest...)
			continue
		case !errors.Is(err, unix.EINVAL): // EINVAL: there, and not a link
			return describe(next, "not reachable for "+account, err)
		}
		if len(rest) == 0 {
			return unstartable(next)
		}
		at = next
	}
}

// unstartable says what is wrong with the last component.
func unstartable(file string) string {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return describe(file, "not readable", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return file + " is not a regular file"
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(file, &fs); err == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return file + " is on a noexec mount"
	}
	if err := access(file, unix.X_OK); err != nil {
		return describe(file, "not executable", err)
	}
	return ""
}

func access(p string, mode uint32) error {
	return unix.Faccessat(unix.AT_FDCWD, p, mode, unix.AT_EACCESS)
}

func describe(p, refusal string, err error) string {
	switch {
	case errors.Is(err, unix.EACCES):
		return p + " is " + refusal
	case errors.Is(err, unix.ENOENT):
		return p + " does not exist"
	case errors.Is(err, unix.ENOTDIR):
		return p + " is not below a folder"
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	return fmt.Sprintf("%s is %s: %v", p, refusal, err)
}
