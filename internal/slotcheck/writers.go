package slotcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// trust names whoever may write at a place: root does so in any case.
type trust struct {
	uids, gids []uint32
	owner      string // who should own what an account besides these owns
}

// rootAlone is for what decides who runs what as which slot; andService for what
// the service itself puts there.
func rootAlone() trust { return trust{uids: []uint32{0}, gids: []uint32{0}, owner: "root"} }

func (a *audit) andService() trust {
	return trust{uids: []uint32{0, a.service.UID}, gids: []uint32{0, a.service.GID}, owner: a.layout.Product}
}

// checkWriters looks at every step to slotctl, to the slot table, to the launcher
// in use, to the documents and to the service's units: whoever may write at one of them puts a program of their own
// in its place, or gives slots away. It speaks only of what is open.
func checkWriters(_ context.Context, a *audit, _ subject) []report.Row {
	var rows []report.Row
	seen := map[string]bool{}
	look := func(ok trust, paths ...string) {
		for _, p := range paths {
			if !seen[p] {
				seen[p] = true
				rows = append(rows, a.writers(p, ok)...)
			}
		}
	}
	// slotctl, its config and their folder are slotctl-config's, the table itself
	// is slot-table's.
	seen[a.slotctl], seen[a.configFile], seen[filepath.Dir(a.slotctl)], seen[a.tableFile] = true, true, true, true
	for _, p := range []string{a.slotctl, filepath.Join(filepath.Dir(a.slotctl), filepath.Base(a.layout.AdminHalf())), a.tableFile} {
		look(rootAlone(), ways(p)...)
	}
	l, service := a.layout, a.andService()
	above := service
	above.owner = "root"
	for _, root := range []string{l.App, a.docs, a.service.Home} {
		for _, p := range ways(root) {
			if p == root || p == resolve(root) {
				look(service, p)
			} else {
				look(above, p)
			}
		}
	}
	look(service, a.unitFiles()...)
	look(service, l.SlotsRoot(), l.SlotHomes(), l.SlotStates(), l.SlotRuns(), l.Users(), l.Releases())
	look(service, way(a.launcher)...)
	look(service, a.releasePrograms()...)
	return append(rows, a.besideTable()...)
}

// unitFiles say what runs as the service: those of a user manager, with the
// folders on the way to them from the account's home.
func (a *audit) unitFiles() []string {
	if a.systemManager() {
		return nil
	}
	dir := filepath.Join(a.service.Home, ".config/systemd/user")
	files, _ := filepath.Glob(filepath.Join(dir, "*")) // a pattern of ours
	inner, _ := filepath.Glob(filepath.Join(dir, "*.d", "*"))
	return slices.Concat([]string{filepath.Dir(filepath.Dir(dir)), filepath.Dir(dir), dir}, files, inner)
}

// releasePrograms are the other programs beside the launcher, which the service
// runs as itself.
func (a *audit) releasePrograms() []string {
	if a.launcher == "" {
		return nil
	}
	dir := filepath.Dir(a.launcher)
	entries, _ := os.ReadDir(dir) // one that cannot be read is the launcher's own row
	var files []string
	for _, e := range entries {
		files = append(files, filepath.Join(dir, e.Name()))
	}
	return files
}

// ways are the steps to p by its name, and to where its links lead.
func ways(p string) []string { return append(way(p), way(resolve(p))...) }

// besideTable are the files of the table's writers: an open lock lets anybody hold up
// every assignment, and the history says who had which slot.
func (a *audit) besideTable() []report.Row {
	dir := filepath.Dir(a.tableFile)
	var rows []report.Row
	for _, file := range []string{a.layout.SlotTableLock(), a.layout.SlotHistory()} {
		t := thing{path: filepath.Join(dir, filepath.Base(file)), mode: 0o600, optional: true}
		for _, r := range a.differs(t) {
			if r.State == report.Fail { // one that the service may not look at, no slot may either
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// writers says who besides those of ok may write at p. A link has no mode of
// its own: the folder it stands in decides who may change it.
func (a *audit) writers(p string, ok trust) []report.Row {
	acc, err := readAccess(p)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), err == nil && acc.Kind == unix.S_IFLNK:
		return nil // what keeps the service from it keeps commands from starting, and other rows say so
	case err != nil:
		return unknown(err.Error())
	}
	var rows []report.Row
	if !slices.Contains(ok.uids, acc.UID) {
		rows = append(rows, fail(fmt.Sprintf("%s is owned by %s: %s", p, a.userName(acc.UID), replaceable), a.ownerFix(p, acc.UID, ok.owner))...)
	}
	if who := a.openTo(acc, ok); who != nil {
		rows = append(rows, fail(fmt.Sprintf("%s can be written by %s (mode %04o): %s", p, strings.Join(who, ", "), acc.Mode, replaceable), a.closeFix(p, acc, ok))...)
	}
	return rows
}

const replaceable = "what slots depend on could be replaced"

// stranger says whether an ACL entry gives somebody who is not trusted a way to
// write, were it not for the mask.
func (ok trust) stranger(e safefs.ACLEntry) bool {
	if !named(e) || e.Perm&permW == 0 {
		return false
	}
	if e.Tag == safefs.ACLUser {
		return !slices.Contains(ok.uids, e.ID)
	}
	return !slices.Contains(ok.gids, e.ID)
}

// openTo names who besides those of ok may write.
func (a *audit) openTo(acc access, ok trust) []string {
	var who []string
	group := acc.Mode&0o020 != 0
	for _, e := range acc.ACL {
		if e.Tag == safefs.ACLGroup { // with a list the mode shows the mask here
			group = e.Perm&acc.mask()&permW != 0
		}
		if ok.stranger(e) && acc.mask()&permW != 0 {
			who = append(who, a.entryName(e))
		}
	}
	if group && !slices.Contains(ok.gids, acc.GID) {
		who = append(who, "group "+a.groupName(acc.GID))
	}
	if acc.Mode&0o002 != 0 {
		who = append(who, "others")
	}
	return who
}

// closeFix takes that way from them. Where docs/formats.md gives the whole mode,
// it is that one; where it wants a folder not to be listed, that too.
func (a *audit) closeFix(p string, acc access, ok trust) *report.Fix {
	mode, exact := a.rightMode(p)
	if slices.ContainsFunc(acc.ACL, named) {
		group, other := uint16(7), uint16(7&^permW)
		if !slices.Contains(ok.gids, acc.GID) {
			group = 7 &^ permW
		}
		if exact {
			group, other = uint16(mode>>3&7), uint16(mode&7)
		}
		return a.changeFix(p, acc.without(ok.stranger, group, other)...)
	}
	if exact {
		return a.changeFix(p, "chmod", fmt.Sprintf("%04o", mode))
	}
	words := "go-w"
	if dir := path.Dir(a.launcher); (p == dir || p == path.Dir(dir)) && acc.Mode&permR != 0 {
		words += ",o-r"
	}
	return a.changeFix(p, "chmod", words)
}

// ownerFix gives p to whom it belongs, unless it is the home of who has it.
func (a *audit) ownerFix(p string, uid uint32, owner string) *report.Fix {
	for _, u := range a.accounts.Users() {
		if u.UID == uid && u.Home == p {
			return noFix(report.OnHost, fmt.Sprintf("%s is the home of %s, who can replace all that is in it: move %s out of it, or let %s own it", p, u.Name, a.layout.App, owner))
		}
	}
	return hostFix("chown", owner, p)
}
