package admission

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/safefs"
)

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
