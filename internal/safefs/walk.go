package safefs

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"
)

// within is how Walk opens one name: no link, no mount. A single name needs no
// RESOLVE_BENEATH, whose EXDEV would look like a mount's.
const within = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// Entry is one file that Walk meets. It is good during the visit only.
type Entry struct {
	Name string
	// Stat is what the name stood for when it was met; the file may have been
	// exchanged since, so decisions are taken again on the opened file (Ensure).
	Stat Stat
	// Mounted: a folder that another file system, or another part of the same
	// one, is mounted on. Walk does not enter it, and Open refuses it.
	Mounted bool

	dir *Dir
}

// Path is the entry's path for messages.
func (e *Entry) Path() string { return path.Join(e.dir.path, e.Name) }

// Open holds the file itself; a link is not followed. A mount is refused with
// an error that errors.Is(err, unix.EXDEV): a file can be one, too.
func (e *Entry) Open() (*Node, error) {
	fd, err := openat2(e.dir.fd, e.Name, unix.O_PATH|unix.O_NOFOLLOW, 0, within)
	if err != nil {
		return nil, fail("open", e.Path(), err)
	}
	return &Node{fd: fd, path: e.Path()}, nil
}

// Ensure gives the file what rule says for it. The rule is asked for the stat
// that Walk saw, which costs nothing where it asks for no change, and again for
// the file that is then opened, which alone counts. A name that is gone by then
// is no error.
func (e *Entry) Ensure(rule func(Stat) Attr) (diff string, err error) {
	if rule(e.Stat).Diff(e.Stat) == "" {
		return "", nil
	}
	n, err := e.Open()
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer n.Close()
	st, err := n.Stat()
	if err != nil {
		return "", err
	}
	return n.Ensure(rule(st))
}

// Walk visits everything below d, a folder before its content, and d itself
// not; where visit answers fs.SkipDir for a folder, its content is left out. It
// follows no link and enters no mount. What vanishes or changes its type
// meanwhile is passed over: a concurrent writer can hide his own files from one
// walk, and cannot lead it elsewhere. It holds one descriptor a level.
func (d *Dir) Walk(ctx context.Context, visit func(*Entry) error) error {
	return d.walk(ctx, make([]byte, 32<<10), visit)
}

func (d *Dir) walk(ctx context.Context, buf []byte, visit func(*Entry) error) error {
	names, err := d.names(buf)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.enter(ctx, buf, name, visit); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dir) enter(ctx context.Context, buf []byte, name string, visit func(*Entry) error) error {
	var raw unix.Stat_t
	err := unix.Fstatat(d.fd, name, &raw, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return fail("stat", path.Join(d.path, name), err)
	}
	e := &Entry{Name: name, Stat: newStat(&raw), dir: d}
	if !e.Stat.IsDir() {
		return visit(e)
	}
	fd, err := openat2(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0, within)
	switch err {
	case nil:
	case unix.EXDEV:
		e.Mounted = true
		return visit(e)
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return nil
	default:
		return fail("open", e.Path(), err)
	}
	sub := newDir(fd, e.Path())
	defer sub.Close()
	if err := visit(e); err != nil {
		if err == fs.SkipDir {
			return nil
		}
		return err
	}
	return sub.walk(ctx, buf, visit)
}
