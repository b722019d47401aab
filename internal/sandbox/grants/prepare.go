package grants

import (
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Prepare opens the folders of writes that lie below docs to their group, since
// the slot works in them by its group: 2770, and g+x alone on the folders above
// them (case G-08). It changes only folders of the calling account whose group is
// not its own (a slot has nothing of that group, and _users or config must stay
// as they are), goes by descriptors and through no link, and leaves the docs root,
// files, and names that do not exist as they are. Where a folder cannot be opened so, the command
// would fail later, so the error refuses it now.
func Prepare(docs string, writes []string) error {
	docs = path.Clean(docs)
	for _, w := range writes {
		if !strings.HasPrefix(w, docs+"/") {
			continue // not the platform's to change
		}
		if err := prepare(docs, strings.Split(w[len(docs)+1:], "/")); err != nil {
			return fmt.Errorf("prepare %s for writing: %w", w, err)
		}
	}
	return nil
}

func prepare(docs string, names []string) error {
	at, err := unix.Open(docs, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", docs, err)
	}
	defer func() { unix.Close(at) }()
	for i, name := range names {
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			return nil
		}
		if err != nil {
			return fmt.Errorf("open %s: %w", name, err)
		}
		unix.Close(at)
		at = next
		done, err := open(at, name, i == len(names)-1)
		if done || err != nil {
			return err
		}
	}
	return nil
}

// open gives the folder behind the descriptor at the bits it needs. Done says
// that there is nothing below it to look at.
func open(at int, name string, last bool) (done bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return true, fmt.Errorf("stat %s: %w", name, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK:
		return true, fmt.Errorf("%s is a link", name)
	default:
		return true, nil
	}
	mode := st.Mode & 0o7777
	want := mode | 0o010
	if last {
		want = (mode | 0o2770) &^ 0o007
	}
	if int(st.Uid) != os.Geteuid() || int(st.Gid) == os.Getegid() || mode == want {
		return false, nil
	}
	// An O_PATH descriptor cannot be chmod-ed itself; its entry in /proc names
	// the same folder whatever happens to the path.
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", at), want); err != nil {
		return true, fmt.Errorf("chmod %04o %s: %w", want, name, err)
	}
	if err := unix.Fstat(at, &st); err != nil {
		return true, fmt.Errorf("stat %s: %w", name, err)
	}
	if st.Mode&0o7777 != want {
		// The kernel drops setgid where this process is not in the folder's group (case P-11).
		return true, fmt.Errorf("%s stays %04o: this process is not in its group", name, st.Mode&0o7777)
	}
	return false, nil
}
