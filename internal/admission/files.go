package admission

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/safefs"
)

var errNotFolder = errors.New("it is no folder")

// subfolder opens a real folder directly below root.
func subfolder(root *os.Root, name string) (*os.Root, error) {
	fi, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, errNotFolder
	}
	return root.OpenRoot(name)
}

func descend(root *os.Root, rel string) (*os.Root, error) {
	at := root
	for name := range strings.SplitSeq(rel, "/") {
		next, err := subfolder(at, name)
		if at != root {
			at.Close()
		}
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// children lists the real, non-hidden folders directly below root, by name.
func children(root *os.Root) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// readRegular reads a regular file of at most limit bytes, without waiting for
// a writer on a FIFO and without following a link.
func readRegular(root *os.Root, name string, limit int64) ([]byte, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	if before.Size() > limit {
		return nil, fmt.Errorf("it is larger than %d KiB", limit>>10)
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(before, now) {
		return nil, errors.New("it changed while it was read")
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it is larger than %d KiB", limit>>10)
	}
	return data, err
}

// reason is err without the path it carries, which may hold a user's id.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// printable quotes what could not stand on a terminal line as it is, and cuts
// what is too long for one.
func printable(s string) string {
	if len(s) > 512 {
		s = s[:512] + "…"
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Sprintf("%q", s)
	}
	return s
}

// readSmall reads a regular file of at most limit bytes, without waiting for a
// writer on a FIFO.
func readSmall(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it is larger than %d KiB", limit>>10)
	}
	return data, err
}

// openToOthers says to whom but its owner and that owner's own group a file is
// open, by mode and ACL; "" where to nobody.
func openToOthers(name string, ownGroup uint32) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return "", err
	}
	acl := safefs.ACLFromMode(st.Mode)
	buf := make([]byte, 1<<16) // the most an attribute can hold
	n, err := unix.Getxattr(name, string(safefs.AccessACL), buf)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
	case err != nil:
		return "", err
	default:
		if acl, err = safefs.ParseACL(buf[:n]); err != nil {
			return "", err
		}
	}
	mask := uint16(7)
	for _, e := range acl {
		if e.Tag == safefs.ACLMask {
			mask = e.Perm
		}
	}
	const readOrWrite = 6
	var open []string
	for _, e := range acl {
		switch masked := e.Perm & mask & readOrWrite; {
		case e.Tag == safefs.ACLOther && e.Perm&readOrWrite != 0:
			open = append(open, "others")
		case e.Tag == safefs.ACLGroup && masked != 0 && st.Gid != ownGroup:
			open = append(open, fmt.Sprintf("group %d", st.Gid))
		case e.Tag == safefs.ACLUser && masked != 0:
			open = append(open, fmt.Sprintf("user %d by its ACL", e.ID))
		case e.Tag == safefs.ACLNamed && masked != 0:
			open = append(open, fmt.Sprintf("group %d by its ACL", e.ID))
		}
	}
	return strings.Join(open, ", "), nil
}
