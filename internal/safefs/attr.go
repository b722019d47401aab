package safefs

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Stat is what the kernel says of a file: mode holds the type and the twelve
// permission bits as in inode(7).
type Stat struct {
	Dev, Ino uint64
	Mode     uint32
	Links    uint64
	UID, GID int
	Size     int64
	// Changed is the ctime in nanoseconds since 1970: the last time that its
	// content, its mode or one of its names changed. Nobody can set it.
	Changed int64
}

func newStat(st *unix.Stat_t) Stat {
	return Stat{Dev: st.Dev, Ino: st.Ino, Mode: st.Mode, Links: uint64(st.Nlink), UID: int(st.Uid), GID: int(st.Gid), Size: st.Size,
		Changed: st.Ctim.Nano()}
}

// Perm is the mode without the type: setuid, setgid, sticky and rwx bits.
func (s Stat) Perm() uint32 { return s.Mode & 0o7777 }

// IsDir says whether it is a folder.
func (s Stat) IsDir() bool { return s.Mode&unix.S_IFMT == unix.S_IFDIR }

// IsRegular says whether it is a regular file.
func (s Stat) IsRegular() bool { return s.Mode&unix.S_IFMT == unix.S_IFREG }

// IsLink says whether it is a symbolic link.
func (s Stat) IsLink() bool { return s.Mode&unix.S_IFMT == unix.S_IFLNK }

// Kind is the type in a word.
func (s Stat) Kind() string {
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "folder"
	case unix.S_IFREG:
		return "regular file"
	case unix.S_IFLNK:
		return "link"
	case unix.S_IFIFO:
		return "FIFO"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

// Attr says who shall own a file and which mode bits it shall have: those of
// Clear are taken away, then those of Set added. An owner or group of -1 stays
// as it is.
type Attr struct {
	UID, GID   int
	Set, Clear uint32
}

// Keep asks for nothing.
func Keep() Attr { return Attr{UID: -1, GID: -1} }

// Exact asks for an owner, a group (-1 keeps either) and exactly mode.
func Exact(uid, gid int, mode uint32) Attr {
	return Attr{UID: uid, GID: gid, Set: mode, Clear: 0o7777}
}

// Disarmed is the rule that a regular file is neither setuid nor setgid. A
// program that a slot made so would outlive its holder: whoever starts it would
// be the slot, with the next holder's files.
func Disarmed(st Stat) Attr {
	if !st.IsRegular() {
		return Keep()
	}
	return Attr{UID: -1, GID: -1, Clear: unix.S_ISUID | unix.S_ISGID}
}

// apply is the file st as a should have it. A link has no mode of its own. A
// file that changes hands loses setuid and setgid unless Set asks for them: a
// program that a user made setuid must not become setuid for its new owner.
func (a Attr) apply(st Stat) Stat {
	want := st
	if a.UID >= 0 {
		want.UID = a.UID
	}
	if a.GID >= 0 {
		want.GID = a.GID
	}
	if st.IsLink() {
		return want
	}
	mode := st.Mode
	if !st.IsDir() && (want.UID != st.UID || want.GID != st.GID) {
		mode &^= unix.S_ISUID | unix.S_ISGID
	}
	want.Mode = mode&^(a.Clear&0o7777) | a.Set&0o7777
	return want
}

// Diff words what a would change on st: "owner 0 → 1001, mode 0755 → 2770".
// Empty means nothing.
func (a Attr) Diff(st Stat) string {
	want := a.apply(st)
	var parts []string
	if want.UID != st.UID {
		parts = append(parts, fmt.Sprintf("owner %d → %d", st.UID, want.UID))
	}
	if want.GID != st.GID {
		parts = append(parts, fmt.Sprintf("group %d → %d", st.GID, want.GID))
	}
	if want.Mode != st.Mode {
		parts = append(parts, fmt.Sprintf("mode %04o → %04o", st.Perm(), want.Perm()))
	}
	return strings.Join(parts, ", ")
}

// Frozen says that not even root can change the file: it is immutable or takes
// only additions (chattr(1)). False where the file system does not tell.
func (n *Node) Frozen() (bool, error) {
	var st unix.Statx_t
	if err := unix.Statx(n.fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &st); err != nil {
		return false, fail("stat", n.path, err)
	}
	return st.Attributes&(unix.STATX_ATTR_IMMUTABLE|unix.STATX_ATTR_APPEND) != 0, nil
}

// Ensure gives the file what a asks for and says what it changed; it touches
// nothing (not even the ctime) where nothing differs.
//
// Where the new owner or group could use a mode bit that a takes away, there is
// a moment in which neither has the file: bits go first, then the file changes
// hands, then bits come.
func (n *Node) Ensure(a Attr) (diff string, err error) {
	st, err := n.Stat()
	if err != nil {
		return "", err
	}
	diff = a.Diff(st)
	if diff == "" {
		return "", nil
	}
	want := a.apply(st)
	if hands := want.UID != st.UID || want.GID != st.GID; hands {
		if narrow := st.Perm() & want.Perm(); !st.IsLink() && narrow != st.Perm() {
			if err := n.chmod(narrow); err != nil {
				return "", err
			}
			st.Mode = st.Mode&^0o7777 | narrow
		}
		if err := unix.Fchownat(n.fd, "", want.UID, want.GID, unix.AT_EMPTY_PATH); err != nil {
			return "", fail("chown", n.path, err)
		}
		// chown clears setuid and setgid, whoever calls it; and a former owner may
		// have changed the mode since it was read.
		if st, err = n.Stat(); err != nil {
			return "", err
		}
	}
	if want.Mode != st.Mode && !st.IsLink() {
		if err := n.chmod(want.Perm()); err != nil {
			return "", err
		}
	}
	return diff, nil
}

func (n *Node) chmod(perm uint32) error {
	if err := unix.Chmod(n.proc(), perm); err != nil {
		return fail("chmod", n.path, err)
	}
	return nil
}
