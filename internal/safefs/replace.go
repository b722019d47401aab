package safefs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Content is what Replace writes and how the new file shall be.
type Content struct {
	From io.Reader
	// UID and GID of the new file; -1 takes those of the old file, or the
	// caller's own where there is none.
	UID, GID int
	Mode     uint32
	// KeepXattrs carries the old file's extended attributes over, its ACL and
	// security label included.
	KeepXattrs bool
}

// TempName is the name beside a file under which Replace writes it anew.
func TempName(name string) string { return "." + name + ".agentworks-new" }

// Replace puts a new file in name's place: readers see the old content or the
// new, whole, and never a wrong owner or mode (cases T-01, B23, B24). The new
// file stands beside the old one under TempName, closed to others until it has
// owner, group, attributes and mode; it and the folder are on the disk when
// Replace returns without an error (case B27). The caller holds a lock: one
// writer a file. On an error before the rename the old file is untouched.
func (d *Dir) Replace(name string, c Content) error {
	if err := d.DropStale(name); err != nil {
		return err
	}
	temp := TempName(name)
	fd, err := d.openat2(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, c.Mode&0o700)
	if err != nil {
		return err
	}
	err = d.fill(fd, name, c)
	if err == nil {
		if err = unix.Renameat(d.fd, temp, d.fd, name); err != nil {
			err = fail("replace", path.Join(d.path, name), err)
		}
	}
	if err != nil {
		return errors.Join(err, d.Remove(temp))
	}
	return d.Sync()
}

// fill writes the new file and closes it.
func (d *Dir) fill(fd int, name string, c Content) error {
	f := os.NewFile(uintptr(fd), path.Join(d.path, TempName(name)))
	defer f.Close()
	n := &Node{fd: fd, path: f.Name()}
	if _, err := io.Copy(f, c.From); err != nil {
		return fmt.Errorf("write %s: %w", n.path, err)
	}
	old, err := d.Open(name)
	switch {
	case err == nil:
		defer old.Close()
		if err := d.inherit(n, old, &c); err != nil {
			return err
		}
	case !errors.Is(err, unix.ENOENT):
		return err
	}
	// Attributes may have brought an ACL, whose mask the mode's group bits are.
	if err := unix.Fchown(fd, c.UID, c.GID); err != nil {
		return fail("chown", n.path, err)
	}
	if err := unix.Fchmod(fd, c.Mode); err != nil {
		return fail("chmod", n.path, err)
	}
	if err := d.fsync(fd); err != nil {
		return fail("sync", n.path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close %s: %w", n.path, err)
	}
	return nil
}

// inherit fills c's owner and group from the old file, which must be a regular
// one, and copies its extended attributes where asked.
func (d *Dir) inherit(n, old *Node, c *Content) error {
	st, err := old.Stat()
	if err != nil {
		return err
	}
	if !st.IsRegular() {
		return fmt.Errorf("replace %s: a %s, not a regular file", old.path, st.Kind())
	}
	if c.UID < 0 {
		c.UID = st.UID
	}
	if c.GID < 0 {
		c.GID = st.GID
	}
	if !c.KeepXattrs {
		return nil
	}
	return copyXattrs(old, n)
}

func copyXattrs(from, to *Node) error {
	names, err := from.listXattrs()
	if err != nil {
		return err
	}
	for _, name := range names {
		value, err := from.getXattr(name)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return err
		}
		if err := to.setXattr(name, value); err != nil {
			return err
		}
	}
	return nil
}

// DropStale removes what a killed Replace of name left beside it. A folder there
// is nobody's leftover and an error (case T-06).
func (d *Dir) DropStale(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	temp := TempName(name)
	st, err := d.Lstat(temp)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.IsDir() {
		return fmt.Errorf("write %s: %s is in the way: a folder, not a file left by an earlier run", name, path.Join(d.path, temp))
	}
	return d.Remove(temp)
}

func (n *Node) listXattrs() ([]string, error) {
	size, err := unix.Listxattr(n.proc(), nil)
	if err == nil && size > 0 {
		buf := make([]byte, size+4096)
		// Overlayfs counts attributes of its own that it does not list.
		if size, err = unix.Listxattr(n.proc(), buf); err == nil && size > 0 {
			return strings.Split(strings.TrimSuffix(string(buf[:size]), "\x00"), "\x00"), nil
		}
	}
	if err != nil && err != unix.ENOTSUP {
		return nil, fail("list attributes of", n.path, err)
	}
	return nil, nil
}

func (n *Node) getXattr(name string) ([]byte, error) {
	buf := make([]byte, 64<<10) // XATTR_SIZE_MAX
	size, err := unix.Getxattr(n.proc(), name, buf)
	if err != nil {
		return nil, fail("read attribute "+name+" of", n.path, err)
	}
	return buf[:size], nil
}

func (n *Node) setXattr(name string, value []byte) error {
	if err := unix.Setxattr(n.proc(), name, value, 0); err != nil {
		return fail("set attribute "+name+" of", n.path, err)
	}
	return nil
}
