package slotcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/sandbox/slots"
)

// The modes that docs/formats.md gives to folders.
const (
	passMode   = 0o711  // searchable, never listable
	closedMode = 0o700  // the owner's alone
	slotMode   = 0o2770 // the service's, shared with one slot
)

// etcParent is ETC of the default prefix, in which those of others stand.
const etcParent = "/etc/agentworks"

// rightMode is the whole mode that docs/formats.md gives p; false where it gives
// none, or single bits. A fix sets all of it: with less a row would pass, and
// provision or slots status would still have something to say.
func (a *audit) rightMode(p string) (mode uint32, ok bool) {
	l := a.layout
	dir, name := path.Dir(p), path.Base(p)
	slot := slots.ValidSlot(l.Prefix, name)
	switch {
	case p == l.Releases(), p == resolve(l.Releases()), p == l.Users(),
		p == l.SlotsRoot(), p == l.SlotHomes(), p == l.SlotStates(), p == l.SlotRuns():
		return passMode, true
	case slot && dir == l.SlotHomes():
		return closedMode, true
	case slot && (dir == l.SlotStates() || dir == l.SlotRuns()), dir == l.Users() && a.table != nil && a.table.Slot(name) != "":
		return slotMode, true
	case p == a.launcher:
		return 0o755, true
	case p == etcParent:
		return 0o751, true
	case p == l.Etc():
		return 0o750, true
	}
	return 0, false
}

// named says whether an entry is for one account or group.
func named(e safefs.ACLEntry) bool { return e.Tag == safefs.ACLUser || e.Tag == safefs.ACLNamed }

// intruders are the entries for somebody besides the service, and besides the
// account uid and the group gid.
func (a *audit) intruders(list safefs.ACL, uid, gid uint32) (found safefs.ACL) {
	for _, e := range list {
		if e.Tag == safefs.ACLUser && e.ID != uid && e.ID != a.service.UID || e.Tag == safefs.ACLNamed && e.ID != gid && e.ID != a.service.GID {
			found = append(found, e)
		}
	}
	return found
}

// entryNames are the entries of a list for people: "entry for slot02, group staff".
func (a *audit) entryNames(list safefs.ACL) string {
	var names []string
	for _, e := range list {
		if named(e) {
			names = append(names, a.entryName(e))
		}
	}
	if names == nil { // its mask alone is left
		return "list"
	}
	return "entry for " + strings.Join(names, ", ")
}

// entryName is an entry for people.
func (a *audit) entryName(e safefs.ACLEntry) string {
	if e.Tag == safefs.ACLUser {
		return a.userName(e.ID)
	}
	return "group " + a.groupName(e.ID)
}

// entrySpec is an entry as setfacl -x takes it.
func entrySpec(e safefs.ACLEntry) string {
	kind := "u:"
	if e.Tag == safefs.ACLNamed {
		kind = "g:"
	}
	return kind + strconv.FormatUint(uint64(e.ID), 10)
}

// without gives the words, but for the file, that take the entries of drop out
// of the ACL, and leave the file's own group and others at most these bits. The
// whole list goes where no entry would be left, since its mask alone would keep
// the mode from being what it says.
func (acc access) without(drop func(safefs.ACLEntry) bool, group, other uint16) []string {
	var gone, left []string
	owning := uint16(acc.Mode >> 3 & 7)
	for _, e := range acc.ACL {
		switch {
		case e.Tag == safefs.ACLGroup:
			owning = e.Perm
		case named(e) && drop(e):
			gone = append(gone, entrySpec(e))
		case named(e):
			left = append(left, entrySpec(e))
		}
	}
	words := []string{"setfacl"}
	switch {
	case left == nil:
		words = append(words, "-b")
		owning &= acc.mask() // setfacl leaves the group what the mask left it
	case gone != nil:
		words = append(words, "-x", strings.Join(gone, ","))
	}
	var change []string
	if owning&^group != 0 {
		change = append(change, "g::"+permText(owning&group))
	}
	if others := uint16(acc.Mode) & 7; others&^other != 0 {
		change = append(change, "o::"+permText(others&other))
	}
	if change != nil {
		words = append(words, "-m", strings.Join(change, ","))
	}
	return words
}

// bare gives the words that take the whole ACL away and leave the permission
// bits of mode; setuid, setgid and sticky are chmod's.
func (acc access) bare(mode uint32) []string {
	words := []string{"setfacl", "-b"}
	owning := acc.mask()
	for _, e := range acc.ACL {
		if e.Tag == safefs.ACLGroup {
			owning &= e.Perm
		}
	}
	var change []string
	for _, c := range []struct {
		who       string
		has, want uint32
	}{{"u::", acc.Mode >> 6 & 7, mode >> 6 & 7}, {"g::", uint32(owning), mode >> 3 & 7}, {"o::", acc.Mode & 7, mode & 7}} {
		if c.has != c.want {
			change = append(change, c.who+permText(uint16(c.want)))
		}
	}
	if change != nil {
		words = append(words, "-m", strings.Join(change, ","))
	}
	return words
}

// thing is a file or folder of which docs/formats.md says all: owner, group, and
// mode, and that no ACL lets anybody else in.
type thing struct {
	path     string
	uid, gid uint32
	mode     uint32
	folder   bool
	optional bool // it need not be there
}

// differs answers with a row for each way in which a thing is not as it should
// be. In the order of the rows their fixes leave it exactly so.
func (a *audit) differs(t thing) []report.Row {
	acc, err := readAccess(t.path)
	if err != nil {
		return a.unseen(t, err)
	}
	show := a.shown(t.path)
	var rows []report.Row
	add := func(detail string, words ...string) {
		rows = append(rows, fail(show+" "+detail, a.changeFix(t.path, words...))...)
	}
	kind, is := "a file", acc.Kind == unix.S_IFREG
	if t.folder {
		kind, is = "a folder", acc.Kind == unix.S_IFDIR
	}
	if !is {
		return fail(show+" is not "+kind, noFix(report.OnHost, "look at what stands there, move it away, and provision"))
	}
	if acc.UID != t.uid {
		add(fmt.Sprintf("is owned by %s, not %s", a.userName(acc.UID), a.userName(t.uid)), "chown", a.userName(t.uid))
	}
	if acc.GID != t.gid {
		add(fmt.Sprintf("has group %s, not %s", a.groupName(acc.GID), a.groupName(t.gid)), "chgrp", a.groupName(t.gid))
	}
	left := acc.Mode
	if acc.ACL != nil {
		add("has an ACL "+a.entryNames(acc.ACL), acc.bare(t.mode)...)
		left = left&^0o777 | t.mode&0o777
	}
	if left != t.mode {
		add(fmt.Sprintf("has mode %04o, not %04o", acc.Mode, t.mode), "chmod", fmt.Sprintf("%04o", t.mode))
	}
	if !t.folder {
		return rows
	}
	inherited, err := readACL(t.path, safefs.DefaultACL)
	if err != nil {
		return append(rows, a.unseen(t, err)...)
	}
	if inherited != nil {
		add("has a default ACL "+a.entryNames(inherited), "setfacl", "-k")
	}
	return rows
}

// unseen is the answer about a thing that could not be looked at.
func (a *audit) unseen(t thing, err error) []report.Row {
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return unknown(fmt.Sprintf("%s cannot be looked at: %v", a.shown(t.path), cause(err)))
	case t.optional:
		return nil
	}
	return fail(a.shown(t.path)+" does not exist", a.provisionFix())
}
