package slotcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/sandbox/slots"
)

// checkTreesClosed looks once at each user's tree: whose it is, whose group it
// has, and whether anybody else is let in; and at the two files of the platform
// that a mistake with a tree could open. Rows count trees and name slots, never
// a user.
func checkTreesClosed(_ context.Context, a *audit, _ subject) []report.Row {
	files := append(a.closedFile(a.layout.EnvFile(), a.layout.EnvFile()), a.closedFile(a.layout.UsersFile(), "<docs>/config/users.json")...)
	rows := a.trees()
	if files == nil {
		return rows
	}
	return append(files, slices.DeleteFunc(rows, func(r report.Row) bool { return r.State == report.Pass })...)
}

func (a *audit) trees() []report.Row {
	entries, err := os.ReadDir(a.layout.Users())
	if errors.Is(err, fs.ErrNotExist) {
		return skip("<docs>/_users does not exist")
	}
	if err != nil {
		return unknown(fmt.Sprintf("<docs>/_users cannot be listed: %v", cause(err)))
	}
	groups := a.slotGroups()
	rows := a.lostTrees()
	looked := 0
	for _, e := range entries {
		if !slots.ValidUserID(e.Name()) {
			continue
		}
		looked++
		dir := a.layout.UserTree(e.Name())
		acc, err := readAccess(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			rows = append(rows, unknown(fmt.Sprintf("a tree cannot be looked at: %v", cause(err)))...)
			continue
		}
		rows = append(rows, a.openTree(dir, e, acc, a.table.Slot(e.Name()), groups)...)
	}
	if rows != nil {
		return rows
	}
	return pass(fmt.Sprintf("%d tree(s): the slot's group, nothing for others", looked))
}

// lostTrees are the holders whose tree is gone: none of their commands starts.
// Only slots status may name them.
func (a *audit) lostTrees() []report.Row {
	var rows []report.Row
	host := report.Quote(a.hostName())
	for _, slot := range a.table.Slots() {
		if _, err := os.Lstat(a.layout.UserTree(a.table.User(slot))); errors.Is(err, fs.ErrNotExist) {
			rows = append(rows, fail("the tree of the user of "+slot+" is not there", noFix(report.Operator,
				fmt.Sprintf("put it back, or for an empty one %[1]s slots assign %[2]s for who holds %[3]s (%[1]s slots status %[2]s says who)", program, host, slot)))...)
		}
	}
	return rows
}

// slotGroups gives the slot whose group a number is.
func (a *audit) slotGroups() map[uint32]string {
	groups := map[uint32]string{}
	for _, u := range a.accounts.Users() {
		if slots.ValidSlot(a.layout.Prefix, u.Name) {
			groups[u.GID] = u.Name
		}
	}
	return groups
}

// openTree says what is wrong with one tree of the holder of slot, which is
// empty where the user holds none.
func (a *audit) openTree(dir string, e fs.DirEntry, acc access, slot string, groups map[uint32]string) []report.Row {
	whose := "the tree of the user of " + slot
	wantGroup := a.service.GID
	acct, known := a.accounts.User(slot)
	if slot == "" {
		whose = "a tree of a user without a slot"
	} else if known {
		wantGroup = acct.GID
	}
	change := func(words ...string) *report.Fix { return a.changeFix(dir, words...) }
	var rows []report.Row
	add := func(detail string, fix *report.Fix) { rows = append(rows, fail(whose+" "+detail, fix)...) }
	if e.Type()&fs.ModeSymlink != 0 || !e.IsDir() {
		add("is not a folder", noFix(report.OnHost, "look at what stands there below "+a.layout.Users()))
		return rows
	}
	service := a.layout.Product
	if acc.UID != a.service.UID {
		add("is not owned by "+service, change("chown", service))
	}
	if slot != "" && !known {
		rows = append(rows, skip(whose+": which group it should have is unknown, since there is no such account")...)
	} else if acc.GID != wantGroup {
		whom := a.groupName(acc.GID)
		if other := groups[acc.GID]; other != "" {
			whom = "another slot, " + other
		}
		add("has the group of "+whom, change("chgrp", a.groupName(wantGroup)))
	}
	mode := acc.Mode
	if in := a.intruders(acc.ACL, acct.UID, wantGroup); in != nil {
		words := acc.without(func(e safefs.ACLEntry) bool { return slices.Contains(in, e) }, 7, 0)
		if slices.Contains(words, "-b") && slot != "" {
			words, mode = acc.bare(slotMode), mode&^0o777|slotMode&0o777
		}
		add("has an ACL "+a.entryNames(in), change(words...))
	}
	switch {
	case slot == "" && mode&0o007 != 0:
		add(fmt.Sprintf("is open to others (mode %04o)", mode), change("chmod", "o-rwx"))
	case known && mode != slotMode:
		how := fmt.Sprintf("has mode %04o, not %04o", mode, slotMode)
		if mode&0o007 != 0 {
			how = fmt.Sprintf("is open to others (mode %04o)", mode)
		}
		add(how, change("chmod", fmt.Sprintf("%04o", slotMode)))
	}
	inherited, err := readACL(dir, safefs.DefaultACL)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		rows = append(rows, unknown(fmt.Sprintf("%s cannot be looked at: %v", whose, cause(err)))...)
	}
	if in := a.intruders(inherited, acct.UID, wantGroup); in != nil {
		var specs []string
		for _, e := range in {
			specs = append(specs, entrySpec(e))
		}
		add("has a default ACL "+a.entryNames(in), change("setfacl", "-d", "-x", strings.Join(specs, ",")))
	}
	return rows
}

// never says that nothing is opened to others at p: it lies in folders that are
// one slot's, or the service's alone.
func (a *audit) never(p string) bool {
	for _, root := range []string{a.layout.SlotHomes(), a.layout.SlotStates(), a.layout.SlotRuns(), a.layout.Users()} {
		if p != root && within(p, root) {
			return true
		}
	}
	return within(p, a.layout.DocsConfig())
}

// changeFix is a command on a file, whose name it leaves out where that tells a
// user: find(1) then picks the file by its inode.
func (a *audit) changeFix(file string, words ...string) *report.Fix {
	rel, ok := strings.CutPrefix(file, a.layout.Users()+"/")
	if !ok {
		return hostFix(append(words, file)...)
	}
	var st unix.Stat_t
	if err := unix.Lstat(file, &st); err != nil {
		return noFix(report.OnHost, "a folder of a user is gone or closed: look at it as root")
	}
	depth := strconv.Itoa(strings.Count(rel, "/") + 1)
	argv := append([]string{"find", a.layout.Users(), "-mindepth", depth, "-maxdepth", depth, "-inum", strconv.FormatUint(st.Ino, 10), "-exec"}, words...)
	return hostFix(append(argv, "{}", "+")...)
}

// closedTo is the first folder on the way to dir, dir included, that the slot
// may not enter, and what makes it enter. It is computed from modes and ACLs.
func (a *audit) closedTo(dir string, s subject) (at string, fix *report.Fix) {
	for _, p := range way(dir) {
		acc, err := readAccess(p)
		if err != nil {
			return "", nil
		}
		d := acc.decide(s.Account.UID, s.Groups, permX)
		if d.Granted {
			continue
		}
		users := a.layout.Users()
		below := p != users && within(p, users)
		mode, exact := a.rightMode(p)
		want := uint16(permX)
		switch {
		case below && d.Class == classOther:
			return p, a.changeFix(p, "chgrp", a.groupName(s.Account.GID))
		case within(p, a.docs) && p != a.docs && !within(p, users):
			return p, a.provisionFix() // a shared folder
		case exact && acc.ACL == nil:
			return p, a.changeFix(p, "chmod", fmt.Sprintf("%04o", mode))
		case d.Class == classOther && a.never(p):
			return p, a.provisionFix()
		case below && acc.ACL == nil && d.Class == classGroup:
			return p, a.changeFix(p, "chmod", "g+rwxs") // as slots assign leaves every folder of a tree
		case below:
			want = permR | permW | permX
		}
		words := acc.opener(d, want, p)
		return p, a.changeFix(p, words[:len(words)-1]...)
	}
	return "", nil
}
