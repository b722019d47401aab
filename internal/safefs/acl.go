package safefs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// ACLKind is which of a file's two lists is meant; the value is the extended
// attribute that holds it.
type ACLKind string

// The two lists of a file; only folders have a default one.
const (
	AccessACL  ACLKind = "system.posix_acl_access"
	DefaultACL ACLKind = "system.posix_acl_default"
)

// ACLTag says whom an entry is for; the values are the kernel's.
type ACLTag uint16

// Tags in the order the kernel wants entries in.
const (
	ACLOwner ACLTag = 0x01 // the file's owner
	ACLUser  ACLTag = 0x02 // the user ID
	ACLGroup ACLTag = 0x04 // the file's group
	ACLNamed ACLTag = 0x08 // the group ID
	ACLMask  ACLTag = 0x10 // the most that User, Group and Named entries give
	ACLOther ACLTag = 0x20
)

// ACLEntry gives Perm (rwx as 4, 2, 1) to whom Tag and ID say.
type ACLEntry struct {
	Tag  ACLTag
	Perm uint16
	ID   uint32 // of User and Named entries, else 0
}

// ACL is a POSIX access control list, sorted as in the kernel; see acl(5). Nil
// is "no list": the mode alone counts.
type ACL []ACLEntry

const (
	aclVersion = 2
	aclNoID    = 0xffffffff
)

// ACLFromMode is the list that says the same as the mode's nine bits.
func ACLFromMode(mode uint32) ACL {
	return ACL{
		{Tag: ACLOwner, Perm: uint16(mode >> 6 & 7)},
		{Tag: ACLGroup, Perm: uint16(mode >> 3 & 7)},
		{Tag: ACLOther, Perm: uint16(mode & 7)},
	}
}

// WithGroup is a with perm for the group gid, and with the mask widened to what
// its entries give, so that the new entry is worth what it says (case B21).
func (a ACL) WithGroup(gid int, perm uint16) ACL {
	out := slices.DeleteFunc(slices.Clone(a), func(e ACLEntry) bool {
		return e.Tag == ACLMask || e.Tag == ACLNamed && e.ID == uint32(gid)
	})
	out = append(out, ACLEntry{Tag: ACLNamed, ID: uint32(gid), Perm: perm})
	mask := ACLEntry{Tag: ACLMask}
	for _, e := range out {
		switch e.Tag {
		case ACLUser, ACLGroup, ACLNamed:
			mask.Perm |= e.Perm
		}
	}
	out = append(out, mask)
	slices.SortFunc(out, compareACL)
	return out
}

// Without is a without the named entries that drop says. Where none is left, a
// list of the three others says the same, with what the mask left the group.
func (a ACL) Without(drop func(ACLEntry) bool) ACL {
	named := func(e ACLEntry) bool { return e.Tag == ACLUser || e.Tag == ACLNamed }
	out := slices.DeleteFunc(slices.Clone(a), func(e ACLEntry) bool { return named(e) && drop(e) })
	if slices.ContainsFunc(out, named) {
		return out
	}
	mask := slices.IndexFunc(out, func(e ACLEntry) bool { return e.Tag == ACLMask })
	if mask < 0 {
		return out
	}
	perm := out[mask].Perm
	out = slices.Delete(out, mask, mask+1)
	for i, e := range out {
		if e.Tag == ACLGroup {
			out[i].Perm = e.Perm & perm
		}
	}
	return out
}

func compareACL(a, b ACLEntry) int {
	return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.ID, b.ID))
}

// ParseACL decodes the value of a POSIX ACL attribute and refuses what the
// kernel would.
func ParseACL(value []byte) (ACL, error) {
	if len(value) == 0 {
		return nil, nil
	}
	if len(value) < 4 || (len(value)-4)%8 != 0 {
		return nil, fmt.Errorf("acl: %d bytes cannot be a list", len(value))
	}
	if v := binary.LittleEndian.Uint32(value); v != aclVersion {
		return nil, fmt.Errorf("acl: unknown version %d", v)
	}
	var a ACL
	for rest := value[4:]; len(rest) > 0; rest = rest[8:] {
		e := ACLEntry{
			Tag:  ACLTag(binary.LittleEndian.Uint16(rest)),
			Perm: binary.LittleEndian.Uint16(rest[2:]),
			ID:   binary.LittleEndian.Uint32(rest[4:]),
		}
		if e.Tag != ACLUser && e.Tag != ACLNamed {
			e.ID = 0
		}
		a = append(a, e)
	}
	return a, a.check()
}

// check holds a against the kernel's rules: known tags, sorted, one owner,
// group and other entry each, a mask where users or groups are named.
func (a ACL) check() error {
	if len(a) == 0 {
		return nil
	}
	count := map[ACLTag]int{}
	for i, e := range a {
		switch e.Tag {
		case ACLOwner, ACLGroup, ACLMask, ACLOther:
		case ACLUser, ACLNamed:
			if e.ID == aclNoID {
				return errors.New("acl: an entry for nobody")
			}
		default:
			return fmt.Errorf("acl: unknown tag %#x", uint16(e.Tag))
		}
		if e.Perm > 7 {
			return fmt.Errorf("acl: unknown permission %#x", e.Perm)
		}
		if i > 0 && compareACL(a[i-1], e) >= 0 {
			return errors.New("acl: entries out of order, or one twice")
		}
		count[e.Tag]++
	}
	if count[ACLOwner] != 1 || count[ACLGroup] != 1 || count[ACLOther] != 1 {
		return errors.New("acl: no entry for owner, group or others")
	}
	if count[ACLMask] == 0 && count[ACLUser]+count[ACLNamed] > 0 {
		return errors.New("acl: named entries without a mask")
	}
	return nil
}

// Encode is a as the value of a POSIX ACL attribute.
func (a ACL) Encode() []byte {
	out := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range a {
		id := e.ID
		if e.Tag != ACLUser && e.Tag != ACLNamed {
			id = aclNoID
		}
		out = binary.LittleEndian.AppendUint16(out, uint16(e.Tag))
		out = binary.LittleEndian.AppendUint16(out, e.Perm)
		out = binary.LittleEndian.AppendUint32(out, id)
	}
	return out
}

// ACL reads one of the file's lists; nil where it has none, or where the file
// system knows none.
func (n *Node) ACL(kind ACLKind) (ACL, error) {
	value, err := n.getXattr(string(kind))
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a, err := ParseACL(value)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", kind, n.path, err)
	}
	return a, nil
}

// ACL reads one of the lists of what the name stands for by now: enough to tell
// whether there is anything to do, at the price of one call.
func (e *Entry) ACL(kind ACLKind) (ACL, error) {
	if e.Stat.IsLink() {
		return nil, nil
	}
	buf := make([]byte, 512)
	for {
		n, err := unix.Lgetxattr(e.dir.proc()+"/"+e.Name, string(kind), buf)
		switch err {
		case nil:
			return ParseACL(buf[:n])
		case unix.ERANGE:
			buf = make([]byte, 1<<16) // the most an attribute can hold
		case unix.ENODATA, unix.ENOTSUP, unix.ENOENT:
			return nil, nil
		default:
			return nil, fail("read "+string(kind)+" of", e.Path(), err)
		}
	}
}

// EnsureACL gives the file the list and says whether it had to; nil removes it.
// An access list also sets the mode: owner, mask (or group) and other bits.
func (n *Node) EnsureACL(kind ACLKind, want ACL) (changed bool, err error) {
	if err := want.check(); err != nil {
		return false, fmt.Errorf("%s for %s: %w", kind, n.path, err)
	}
	st, err := n.Stat()
	if err != nil {
		return false, err
	}
	if st.IsLink() {
		return false, fmt.Errorf("%s for %s: a link has none", kind, n.path)
	}
	have, err := n.ACL(kind)
	if err != nil || slices.Equal(have, want) {
		return false, err
	}
	if want != nil {
		return true, n.setXattr(string(kind), want.Encode())
	}
	if err := unix.Removexattr(n.proc(), string(kind)); err != nil {
		return false, fail("remove "+string(kind)+" of", n.path, err)
	}
	return true, nil
}
