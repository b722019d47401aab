package slotcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/slots"
)

// tableMode is what slots.json must have: the service reads it, slots do not,
// and only root writes it.
const tableMode = 0o640

// loadTable reads the slot table and answers with the rows about it: one PASS,
// or one FAIL for each thing that is wrong. Table stays nil where it could not
// be read.
func (a *audit) loadTable() []report.Row {
	var rows []report.Row
	wrong := func(what, detail string, fix *report.Fix) {
		rows = append(rows, report.Row{State: report.Fail, Check: "slot-table-" + what, Detail: detail, Fix: fix})
	}
	file := a.tableFile
	acc, err := readAccess(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			wrong("read", file+" does not exist", a.absentFix())
		} else {
			wrong("read", fmt.Sprintf("%s cannot be looked at: %v", file, cause(err)), a.provisionFix())
		}
		return rows
	}
	if acc.Kind != unix.S_IFREG {
		wrong("read", file+" is not a regular file", noFix(report.OnHost, "look at what stands there, rm or mv it, then agentworks-deploy slots rebuild "+a.hostName()))
		return rows
	}
	if acc.UID != 0 {
		wrong("owner", fmt.Sprintf("%s is owned by %s, not root", file, a.userName(acc.UID)), hostFix("chown", "root", file))
	}
	if acc.GID != a.service.GID {
		group := a.groupName(a.service.GID)
		wrong("group", fmt.Sprintf("%s has group %s, not %s", file, a.groupName(acc.GID), group), hostFix("chgrp", group, file))
	}
	mode := acc.Mode
	if acc.ACL != nil {
		// With a list the mode's group bits are its mask, so chmod would leave the entry.
		wrong("acl", fmt.Sprintf("%s has an ACL %s (mode %04o)", file, a.entryNames(acc.ACL), mode), hostFix(append(acc.bare(tableMode), file)...))
		mode = mode&^0o777 | tableMode
	}
	if mode != tableMode {
		wrong("mode", fmt.Sprintf("%s has mode %04o, not %04o", file, mode, tableMode), hostFix("chmod", "0640", file))
	}
	table, err := slots.ReadTable(file, a.layout.Prefix)
	switch {
	case err == nil:
		a.table = table
	case errors.Is(err, fs.ErrPermission):
		fix := a.provisionFix()
		if len(rows) == 1 { // the row above says why, and its fix gives it back
			fix = rows[0].Fix
		}
		wrong("read", file+" cannot be read by the service", fix)
	default:
		wrong("read", fmt.Sprintf("%s cannot be read: %v", file, cause(err)), a.tableFix())
	}
	if len(rows) == 0 {
		rows = []report.Row{{State: report.Pass, Check: "slot-table", Detail: file + " root-owned, service group, 0640, readable"}}
	}
	return rows
}

// tableFix writes a table that no program understands anew from the users'
// trees, which say who holds what.
func (a *audit) tableFix() *report.Fix { return a.operatorFix("slots", "rebuild") }

// absentFix is the same where somebody held a slot. Provisioning makes an empty
// table, which would take it away.
func (a *audit) absentFix() *report.Fix {
	groups := a.slotGroups()
	entries, err := os.ReadDir(a.layout.Users())
	if err != nil {
		return a.provisionFix()
	}
	for _, e := range entries {
		if acc, err := readAccess(a.layout.UserTree(e.Name())); err == nil && groups[acc.GID] != "" {
			return a.tableFix()
		}
	}
	return a.provisionFix()
}

func (a *audit) userName(uid uint32) string {
	for _, u := range a.accounts.Users() {
		if u.UID == uid {
			return u.Name
		}
	}
	return "uid " + strconv.FormatUint(uint64(uid), 10)
}

func (a *audit) groupName(gid uint32) string {
	for _, g := range a.accounts.Groups() {
		if g.GID == gid {
			return g.Name
		}
	}
	return strconv.FormatUint(uint64(gid), 10)
}
