package safefs

import (
	"context"
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Hardlinks are the regular files with more than one name that a walk met. Such
// a file may be somebody else's: its further names may stand anywhere on the
// file system, and the one in the tree be a way to have root open it to whoever
// the tree is given to. So it is decided about after the walk, when it is known
// whether all its names stand in the tree.
type Hardlinks struct {
	top   *Dir
	began int64
	files map[inode]*linked
	order []inode
}

type inode struct{ dev, ino uint64 }

// linked is one file: a name to open it by, and all names that were met.
type linked struct {
	rel   string
	names map[place]bool
}

// place is a name in a folder, whatever the folder is called.
type place struct {
	folder inode
	name   string
}

// Hardlinks begins to collect for a walk over d.
func (d *Dir) Hardlinks() *Hardlinks {
	return &Hardlinks{top: d, began: kernelTime(), files: map[inode]*linked{}}
}

// kernelTime is the clock that change times are taken from. Where it cannot be
// asked, no file is old enough.
func kernelTime() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return 0
	}
	return now.Nano()
}

// Met keeps e for Each, and says so, where it is a regular file with more than
// one name.
func (h *Hardlinks) Met(e *Entry) (bool, error) {
	if !e.Stat.IsRegular() || e.Stat.Links < 2 {
		return false, nil
	}
	folder, err := e.dir.Stat()
	if err != nil {
		return true, err
	}
	id := inode{e.Stat.Dev, e.Stat.Ino}
	f := h.files[id]
	if f == nil {
		f = &linked{rel: strings.TrimPrefix(strings.TrimPrefix(e.Path(), h.top.path), "/"), names: map[place]bool{}}
		h.files[id] = f
		h.order = append(h.order, id)
	}
	f.names[place{inode{folder.Dev, folder.Ino}, e.Name}] = true
	return true, nil
}

// Each visits every file that was kept. Inside says that all its names stand in
// the tree: as many different ones were met as it has, and none of them came,
// went or moved since the walk began, or its change time would say so; a file
// that was touched a moment ago counts as outside. What is gone or exchanged by
// now is passed over, and so is what something is mounted on.
func (h *Hardlinks) Each(ctx context.Context, visit func(n *Node, st Stat, inside bool) error) error {
	for _, id := range h.order {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := h.one(id, h.files[id], visit); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hardlinks) one(id inode, f *linked, visit func(*Node, Stat, bool) error) error {
	fd, err := openat2(h.top.fd, f.rel, unix.O_PATH|unix.O_NOFOLLOW, 0, beneath|unix.RESOLVE_NO_XDEV)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return nil
	case err != nil:
		return fail("open", path.Join(h.top.path, f.rel), err)
	}
	n := &Node{fd: fd, path: path.Join(h.top.path, f.rel)}
	defer n.Close()
	st, err := n.Stat()
	if err != nil || id != (inode{st.Dev, st.Ino}) {
		return err
	}
	inside := uint64(len(f.names)) == st.Links && st.Changed < h.began
	return visit(n, st, inside)
}
