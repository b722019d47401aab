package slotcheck

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/safefs"
)

// The three permission bits of one class of acl(5).
const (
	permX = 1
	permW = 2
	permR = 4
)

// access is what decides who may do what with one file: its owner, group, mode
// and, where it has one, its access ACL.
type access struct {
	UID, GID uint32
	Kind     uint32 // unix.S_IFDIR and the like
	Mode     uint32 // the permission and special bits, 07777
	ACL      safefs.ACL
}

// readAccess looks at path itself, never at what a link points to.
func readAccess(path string) (access, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return access{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	a := access{UID: st.Uid, GID: st.Gid, Kind: st.Mode & unix.S_IFMT, Mode: st.Mode & 07777}
	var err error
	a.ACL, err = readACL(path, safefs.AccessACL)
	return a, err
}

// readACL reads one list of path itself; none is no error.
func readACL(path string, kind safefs.ACLKind) (safefs.ACL, error) {
	buf := make([]byte, 1<<16) // the most an attribute can hold
	n, err := unix.Lgetxattr(path, string(kind), buf)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	var acl safefs.ACL
	if err == nil {
		acl, err = safefs.ParseACL(buf[:n])
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read ACL of", Path: path, Err: err}
	}
	return acl, nil
}

// class is the entry that decides for an account.
type class string

// The classes of acl(5), in the order the kernel asks them.
const (
	classOwner      class = "owner"
	classNamedUser  class = "user entry"
	classGroup      class = "group"
	classNamedGroup class = "group entry"
	classOther      class = "other"
)

// decision says whether an account has a permission, which entry decided, and
// whether only the mask stood in the way (case B21).
type decision struct {
	Granted  bool
	Class    class
	ID       uint32 // of a named entry
	Perm     uint16 // of the entry that decided, before the mask
	MaskOnly bool
}

// decide is the access check of acl(5) for an account without capabilities.
func (a access) decide(uid uint32, gids []uint32, want uint16) decision {
	mode := uint16(a.Mode)
	if uid == a.UID {
		p := mode >> 6 & 7
		return decision{Granted: p&want == want, Class: classOwner, Perm: p}
	}
	other := decision{Granted: mode&want == want, Class: classOther, Perm: mode & 7}
	if len(a.ACL) == 0 {
		if !slices.Contains(gids, a.GID) {
			return other
		}
		p := mode >> 3 & 7
		return decision{Granted: p&want == want, Class: classGroup, Perm: p}
	}
	mask := a.mask()
	masked := func(c class, e safefs.ACLEntry) decision {
		has := e.Perm&want == want
		return decision{Granted: has && mask&want == want, Class: c, ID: e.ID, Perm: e.Perm, MaskOnly: has && mask&want != want}
	}
	for _, e := range a.ACL {
		if e.Tag == safefs.ACLUser && e.ID == uid {
			return masked(classNamedUser, e)
		}
	}
	var refused *decision
	for _, e := range a.ACL {
		var d decision
		switch {
		case e.Tag == safefs.ACLGroup && slices.Contains(gids, a.GID):
			d = masked(classGroup, e)
		case e.Tag == safefs.ACLNamed && slices.Contains(gids, e.ID):
			d = masked(classNamedGroup, e)
		default:
			continue
		}
		if e.Perm&want == want {
			return d
		}
		if refused == nil {
			refused = &d
		}
	}
	if refused != nil {
		return *refused
	}
	return other
}

// mask is the ACL's mask; without a mask entry nothing is hidden.
func (a access) mask() uint16 {
	for _, e := range a.ACL {
		if e.Tag == safefs.ACLMask {
			return e.Perm
		}
	}
	return 7
}

// opener gives the words that add want for the account that d refused, and
// nothing wider: chmod where modes decide, setfacl without recalculating the
// mask where an entry does.
func (a access) opener(d decision, want uint16, path string) []string {
	perms := permText(want)
	if len(a.ACL) == 0 || d.Class == classOwner || d.Class == classOther {
		who := map[class]string{classOwner: "u", classGroup: "g"}[d.Class]
		if who == "" {
			who = "o"
		}
		return []string{"chmod", who + "+" + strings.ReplaceAll(perms, "-", ""), path}
	}
	var entry string
	if !d.MaskOnly {
		p := permText(d.Perm | want)
		switch d.Class {
		case classNamedUser:
			entry = "u:" + strconv.Itoa(int(d.ID)) + ":" + p + ","
		case classNamedGroup:
			entry = "g:" + strconv.Itoa(int(d.ID)) + ":" + p + ","
		default:
			entry = "g::" + p + ","
		}
	}
	return []string{"setfacl", "-n", "-m", entry + "m::" + permText(a.mask()|want), path}
}

// permText writes permissions as setfacl reads them: r-x.
func permText(p uint16) string {
	b := []byte("---")
	for i, bit := range []uint16{permR, permW, permX} {
		if p&bit != 0 {
			b[i] = "rwx"[i]
		}
	}
	return string(b)
}
