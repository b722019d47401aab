package launcher

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links one path may lead through, as in the kernel.
const maxLinks = 40

// object is something that was opened once (O_PATH): the descriptor is what is
// looked at, bound and granted, never its name again.
type object struct {
	fd   int
	path string // absolute and free of links
	dev  uint64
	ino  uint64
	mode uint32 // st_mode
}

func (o object) isDir() bool { return o.mode&unix.S_IFMT == unix.S_IFDIR }

func (o object) sameAs(other object) bool { return o.dev == other.dev && o.ino == other.ino }

// link is a symbolic link that a path led through.
type link struct {
	object
	id     linkID
	uid    uint32
	target string
	// closed says that no folder on the way to the link lets anybody but its
	// owner put a link there.
	closed bool
}

// linkID tells one link from any other, also from a later one that was given
// the same inode.
type linkID struct {
	Dev   uint64 `json:"dev"`
	Ino   uint64 `json:"ino"`
	CSec  int64  `json:"csec"`
	CNsec int64  `json:"cnsec"`
}

// opener opens paths; follow decides over each link on the way (nil: every
// link is followed).
type opener struct {
	follow func(link) bool
	own    ownIDs
}

// ownIDs are the account's ids, by which the folders on the way are judged.
type ownIDs struct{ uid, gid uint32 }

// open opens an absolute path. On ENOENT it also returns the deepest folder
// that exists; the links it followed come with every answer. Errors are plain
// error numbers: the caller knows which path it asked for.
func (o opener) open(name string) (object, []link, error) {
	if !hasDotDot(name) {
		// Most paths have no link in them: one call instead of one a component.
		fd, err := openat2(unix.AT_FDCWD, name, 0, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
		if err == nil {
			found, err := inspect(fd, path.Clean(name))
			return found, nil, err
		}
		if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOENT) {
			return object{}, nil, err
		}
	}
	return o.walk(name)
}

// walk opens a path component by component, so that each link on the way can
// be judged.
func (o opener) walk(name string) (object, []link, error) {
	var links []link
	at, err := root()
	if err != nil {
		return object{}, nil, err
	}
	closed := o.closed(at)
	rest := strings.Split(name, "/")
	for len(rest) > 0 {
		component := rest[0]
		rest = rest[1:]
		if component == "" || component == "." {
			if !at.isDir() {
				return object{}, links, unix.ENOTDIR
			}
			continue
		}
		fd, err := openat2(at.fd, component, unix.O_NOFOLLOW, unix.RESOLVE_NO_MAGICLINKS)
		if err != nil {
			return at, links, err
		}
		next, err := inspect(fd, path.Join(at.path, component))
		if err != nil {
			return at, links, err
		}
		if next.mode&unix.S_IFMT != unix.S_IFLNK {
			unix.Close(at.fd)
			at = next
			closed = closed && (!at.isDir() || o.closed(at))
			continue
		}
		met, err := o.meet(at, component, next, closed)
		if err != nil {
			return object{}, links, err
		}
		if len(links) == maxLinks {
			return object{}, links, unix.ELOOP
		}
		links = append(links, met)
		rest = append(strings.Split(met.target, "/"), rest...)
		if strings.HasPrefix(met.target, "/") {
			unix.Close(at.fd)
			if at, err = root(); err != nil {
				return object{}, links, err
			}
		}
	}
	return at, links, nil
}

// meet decides over one link: a magic one is never followed, any other where
// the opener's rule says so.
func (o opener) meet(dir object, name string, at object, closed bool) (link, error) {
	met := link{object: at, closed: closed}
	// Only a magic link (those below /proc/<pid>) makes the kernel say ELOOP
	// here, or a chain that never ends.
	fd, err := openat2(dir.fd, name, 0, unix.RESOLVE_NO_MAGICLINKS)
	if errors.Is(err, unix.ELOOP) {
		return met, unix.ELOOP
	}
	if err == nil {
		unix.Close(fd)
	}
	var st unix.Stat_t
	if err := unix.Fstat(at.fd, &st); err != nil {
		return met, err
	}
	met.uid = st.Uid
	met.id = linkID{Dev: st.Dev, Ino: st.Ino, CSec: st.Ctim.Sec, CNsec: st.Ctim.Nsec}
	if o.follow != nil && !o.follow(met) {
		return met, unix.ELOOP
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(at.fd, "", buf)
	if err != nil {
		return met, err
	}
	met.target = string(buf[:n])
	return met, nil
}

// closed says whether no account but this one and a folder's owner can put a
// link into it. A group that may write does not count where this account is not
// in it, since slots are alike, or where it is the account's own, whose other
// members are the service alone. An access list may name anybody.
func (o opener) closed(dir object) bool {
	var st unix.Stat_t
	if err := unix.Fstat(dir.fd, &st); err != nil || st.Uid == o.own.uid || st.Mode&0o002 != 0 {
		return false
	}
	if st.Mode&0o020 == 0 {
		return true
	}
	if _, err := unix.Getxattr(fdPath(dir.fd), "system.posix_acl_access", nil); !noAttribute(err) {
		return false
	}
	return st.Gid == o.own.gid ||
		unix.Faccessat2(dir.fd, "", unix.W_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS) != nil
}

func noAttribute(err error) bool {
	return errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP)
}

func root() (object, error) {
	fd, err := openat2(unix.AT_FDCWD, "/", unix.O_DIRECTORY, 0)
	if err != nil {
		return object{}, err
	}
	return inspect(fd, "/")
}

func inspect(fd int, name string) (object, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return object{}, err
	}
	return object{fd: fd, path: name, dev: st.Dev, ino: st.Ino, mode: st.Mode}, nil
}

// openat2 opens for looking only (O_PATH).
func openat2(dir int, name string, flags uint64, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: resolve}
	for {
		fd, err := unix.Openat2(dir, name, &how)
		// EAGAIN: something was renamed meanwhile, so the kernel could not be
		// sure.
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, err
		}
	}
}

func hasDotDot(name string) bool {
	return strings.Contains(name+"/", "/../")
}

func fdPath(fd int) string { return fmt.Sprintf("/proc/thread-self/fd/%d", fd) }
