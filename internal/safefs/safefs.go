// Package safefs is file work for root in folders that others may write. It
// holds files by descriptor, so that a name which somebody renames, replaces by
// a link or by a device meanwhile never leads the work elsewhere:
//
//   - OpenDir resolves an absolute path; on the way a link is followed only
//     where root planted it (see OpenDir).
//   - Everything below a Dir is reached with openat2(2), beneath it and through
//     no link at all.
//   - Owner, group, mode, attributes and ACL are read and changed on the
//     descriptor (Node), never by name, and no file is opened for its content
//     before its type is known: FIFOs and devices are harmless.
//
// OpenFile, OpenIn, OpenFolder and ReadFile are for the rest: what somebody reads
// as the account that owns it.
//
// Paths in it are for messages only. The package imports the standard library
// and golang.org/x/sys/unix, and nothing of this project. Programs that run as
// a slot have no use for it. It needs Linux 5.6 (openat2) and a mounted /proc.
package safefs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// beneath is how everything below a Dir is resolved.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// Node is one file of any type, held by an O_PATH descriptor: the file itself
// (a link is not followed), whatever becomes of its name.
type Node struct {
	fd   int
	path string
}

// Dir is a folder held by a readable descriptor.
type Dir struct {
	Node
	fsync func(fd int) error // unix.Fsync; tests of failing disks replace it
}

// Path is the name the file was reached by, for messages.
func (n *Node) Path() string { return n.path }

// Close gives the descriptor back.
func (n *Node) Close() error { return unix.Close(n.fd) }

// Stat describes the file as it is now.
func (n *Node) Stat() (Stat, error) {
	var st unix.Stat_t
	if err := unix.Fstat(n.fd, &st); err != nil {
		return Stat{}, fail("stat", n.path, err)
	}
	return newStat(&st), nil
}

// proc names the file behind the descriptor for the calls that take no O_PATH
// descriptor (chmod, xattrs, open): the kernel resolves it to that very file.
func (n *Node) proc() string { return "/proc/self/fd/" + strconv.Itoa(n.fd) }

// Dir opens the folder rel below d; "." is d itself once more.
func (d *Dir) Dir(rel string) (*Dir, error) {
	fd, err := d.openat2(rel, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return newDir(fd, path.Join(d.path, rel)), nil
}

// Own opens the folder name in d as long as it is d's own: something mounted
// there belongs to whoever mounted it, and is refused with an error that
// errors.Is(err, unix.EXDEV).
func (d *Dir) Own(name string) (*Dir, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	fd, err := openat2(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0, within)
	if err != nil {
		return nil, fail("open", path.Join(d.path, name), err)
	}
	return newDir(fd, path.Join(d.path, name)), nil
}

// Open holds the file rel below d, whatever its type; a link at its end is the
// node itself.
func (d *Dir) Open(rel string) (*Node, error) {
	fd, err := d.openat2(rel, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &Node{fd: fd, path: path.Join(d.path, rel)}, nil
}

// Lstat describes the file rel below d without following it.
func (d *Dir) Lstat(rel string) (Stat, error) {
	n, err := d.Open(rel)
	if err != nil {
		return Stat{}, err
	}
	defer n.Close()
	return n.Stat()
}

// ErrNotRegular is why a file's content is not read.
var ErrNotRegular = errors.New("not a regular file")

// OpenRegular opens the regular file rel below d for reading; anything else is
// refused before it is opened, with ErrNotRegular.
func (d *Dir) OpenRegular(rel string) (*os.File, error) {
	n, err := d.Open(rel)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	st, err := n.Stat()
	if err != nil {
		return nil, err
	}
	if !st.IsRegular() {
		return nil, fmt.Errorf("open %s: a %s, %w", n.path, st.Kind(), ErrNotRegular)
	}
	fd, err := unix.Open(n.proc(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fail("open", n.path, err)
	}
	return os.NewFile(uintptr(fd), n.path), nil
}

// ReadFile returns the content of the regular file rel below d; more than limit
// bytes are an error.
func (d *Dir) ReadFile(rel string, limit int64) ([]byte, error) {
	f, err := d.OpenRegular(rel)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: larger than %d bytes", path.Join(d.path, rel), limit)
	}
	return data, nil
}

// Names lists d, unordered, without "." and "..". It reads from the start each
// time.
func (d *Dir) Names() ([]string, error) {
	return d.names(make([]byte, 32<<10))
}

func (d *Dir) names(buf []byte) ([]string, error) {
	if _, err := unix.Seek(d.fd, 0, io.SeekStart); err != nil {
		return nil, fail("list", d.path, err)
	}
	var names []string
	for {
		n, err := unix.ReadDirent(d.fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, fail("list", d.path, err)
		}
		if n == 0 {
			return names, nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}

// EnsureDir makes the folder name in d, or takes the one that is there, and
// gives it want. A new folder is closed to everybody else until it has its
// owner. diff says what changed, "created" for a new folder; it is empty where
// nothing was touched. The caller closes the Dir.
func (d *Dir) EnsureDir(name string, want Attr) (dir *Dir, diff string, err error) {
	if err := checkName(name); err != nil {
		return nil, "", err
	}
	err = unix.Mkdirat(d.fd, name, 0o700)
	if err != nil && err != unix.EEXIST {
		return nil, "", fail("mkdir", path.Join(d.path, name), err)
	}
	created := err == nil
	dir, err = d.Dir(name)
	if err != nil {
		return nil, "", err
	}
	if diff, err = dir.Ensure(want); err != nil {
		dir.Close()
		return nil, "", err
	}
	if created {
		diff = "created"
		if err := d.Sync(); err != nil {
			dir.Close()
			return nil, "", err
		}
	}
	return dir, diff, nil
}

// Remove removes the file or the empty folder name in d. A name that is not
// there is no error.
func (d *Dir) Remove(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	err := unix.Unlinkat(d.fd, name, 0)
	if err == unix.EISDIR {
		err = unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR)
	}
	if err != nil && err != unix.ENOENT {
		return fail("remove", path.Join(d.path, name), err)
	}
	return nil
}

// Sync brings d's names to the disk (case B27).
func (d *Dir) Sync() error {
	if err := d.fsync(d.fd); err != nil {
		return fail("sync", d.path, err)
	}
	return nil
}

func newDir(fd int, path string) *Dir {
	return &Dir{Node: Node{fd: fd, path: path}, fsync: unix.Fsync}
}

// openat2 opens rel beneath d without links. Rel is local and clean.
func (d *Dir) openat2(rel string, flags int, mode uint32) (int, error) {
	if !filepath.IsLocal(rel) || path.Clean(rel) != rel {
		return -1, fmt.Errorf("open %q below %s: not a clean relative path", rel, d.path)
	}
	fd, err := openat2(d.fd, rel, flags, mode, beneath)
	if err != nil {
		return -1, fail("open", path.Join(d.path, rel), err)
	}
	return fd, nil
}

// openat2 repeats the call while concurrent renames made the kernel unsure
// whether it stayed beneath (EAGAIN), or took the file away from beneath between
// finding and opening it (EXDEV, which means a mount only where mounts are
// refused).
func openat2(dirfd int, name string, flags int, mode uint32, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(mode), Resolve: resolve}
	var err error
	for range 1000 {
		var fd int
		fd, err = unix.Openat2(dirfd, name, &how)
		switch err {
		case unix.EAGAIN, unix.EINTR:
		case unix.EXDEV:
			if resolve&unix.RESOLVE_NO_XDEV != 0 {
				return -1, err
			}
		default:
			return fd, err
		}
	}
	return -1, err
}

// fail words an error. Errors.Is sees the errno.
func fail(op, path string, err error) error {
	switch err {
	case unix.EXDEV:
		return fmt.Errorf("%s %s: something is mounted there, which is left alone: %w", op, path, err)
	case unix.ELOOP:
		return fmt.Errorf("%s %s: there is a link on the way, which is not followed here: %w", op, path, err)
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// checkName refuses what is not one name in a folder.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || path.Base(name) != name {
		return fmt.Errorf("%q is not a single file name", name)
	}
	return nil
}
