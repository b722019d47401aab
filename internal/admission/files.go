package admission

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/safefs"
)

var errNotFolder = errors.New("it is no folder")

// subfolder opens a real folder below dir: a link, at its end or on the way, is
// none.
func subfolder(dir *safefs.Dir, rel string) (*safefs.Dir, error) {
	sub, err := dir.Dir(rel)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, errNotFolder
	}
	return sub, err
}

// children lists the real, non-hidden folders directly below dir, by name.
func children(dir *safefs.Dir) ([]string, error) {
	names, err := dir.Names()
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		if strings.HasPrefix(name, ".") {
			return true
		}
		st, err := dir.Lstat(name)
		return err == nil && !st.IsDir() // what cannot be looked at says why when it is opened
	})
	slices.Sort(names)
	return names, nil
}

// readRegular reads a regular file of at most limit bytes; a link is none.
func readRegular(dir *safefs.Dir, name string, limit int64) ([]byte, error) {
	f, err := dir.OpenRegular(name)
	if err != nil {
		return nil, unopened(err)
	}
	return content(f, limit)
}

// readFile reads a regular file of at most limit bytes, through whatever links
// lead there.
func readFile(name string, limit int64) ([]byte, error) {
	f, err := safefs.OpenFile(name)
	if err != nil {
		return nil, unopened(err)
	}
	return content(f, limit)
}

// content reads f, at most limit bytes, and closes it.
func content(f *os.File, limit int64) ([]byte, error) {
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it is larger than %d KiB", limit>>10)
	}
	return data, err
}

// unopened is why safefs opened no file, without its path.
func unopened(err error) error {
	if errors.Is(err, safefs.ErrNotRegular) {
		return errors.New("it is no regular file")
	}
	return reason(err)
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
