package slottable

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/sandbox/slots"
)

// Status says who holds what, and whether all is as it should be.
type Status struct {
	Table TableStatus  `json:"table"`
	Slots []SlotStatus `json:"slots"`
	// WithoutSlot are the enabled accounts of the platform that hold none.
	WithoutSlot []string `json:"without_slot,omitempty"`
	// MaxCommands is how many commands of one slot slotctl lets run at once; 0
	// where its allow-list cannot be read.
	MaxCommands int `json:"max_commands"`
}

// TableStatus describes the file.
type TableStatus struct {
	Path  string `json:"path"`
	Owner string `json:"owner"`
	Group string `json:"group"`
	Mode  string `json:"mode"` // "0640"
}

// SlotStatus describes one slot; User is empty where nobody holds it, Last where
// somebody does or nobody knows.
type SlotStatus struct {
	Slot string `json:"slot"`
	User string `json:"user,omitempty"`
	Last string `json:"last,omitempty"`
	Residue
}

// Show looks at the table and every slot, and changes nothing. Rows that FAIL
// carry their fix.
func Show(ctx context.Context, sys System, req Request) (st Status, rows []report.Row, err error) {
	req.Plan = true
	r, err := begin(ctx, sys, req, "slots-status")
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return st, nil, err
	}
	if st.Table, err = r.showTable(); err != nil {
		return st, r.rows, err
	}
	if _, ok := r.db.Group(r.SharedGroup()); !ok {
		r.fail("slot-account", "", r.provision(), "there is no group %s, through which slots share folders", r.SharedGroup())
	}
	names := r.showAccounts()
	if err := r.showFolders(names); err != nil {
		return st, r.rows, err
	}
	found, err := r.residues(names...)
	if err != nil {
		return st, r.rows, err
	}
	free := 0
	for _, slot := range names {
		s := SlotStatus{Slot: slot, User: r.table.User(slot), Residue: found[slot]}
		if s.User == "" {
			s.Last = r.history.last(slot)
		}
		if r.has(slot) || s.User != "" || !s.Clean() {
			st.Slots = append(st.Slots, s)
		}
		if err := r.showSlot(s); err != nil {
			return st, r.rows, err
		}
		if s.User == "" && s.Clean() && r.has(slot) && r.identity(slot) == nil {
			free++
		}
	}
	st.WithoutSlot = r.showUsers()
	st.MaxCommands = r.showMaxCommands()
	r.row(report.Info, "slots-free", "", "%d of %s free and clean", free, count(r.Count, "slot", "slots"))
	return st, r.rows, nil
}

// showAccounts holds every slot against its account, and returns those that have
// one or are held: the host's, and those above the count.
func (r *run) showAccounts() (names []string) {
	former := r.former()
	if len(former) > 0 {
		r.row(report.Info, "slot-account", "", "above slots.count %d: %s; their accounts and folders stay, and no command can run as them", r.Count, few(former))
	}
	all := slices.Concat(r.names(), former)
	for _, slot := range r.table.Slots() {
		if r.has(slot) {
			continue
		}
		if !slices.Contains(all, slot) {
			all = append(all, slot)
		}
		r.fail("slot-account", slot, report.Fix{Where: report.Operator, Argv: []string{"agentworks-deploy", "slots", "release", r.Host, r.table.User(slot)}},
			"held by %s, and no command can run as it: %s", r.table.User(slot), r.aboveCount(slot))
	}
	for _, slot := range all {
		_, exists := r.account(slot)
		user := r.table.User(slot)
		switch err := r.db.CheckSlot(slot, r.SlotHome(slot)); {
		case !r.has(slot): // told above
		case !exists && user != "":
			r.fail("slot-account", slot, r.provision(), "held by %s, and there is no such account", user)
		case !exists:
		case errors.Is(err, accounts.ErrMissing):
			r.fail("slot-account", slot, r.provision(), "%v", err)
		case err != nil:
			r.fail("slot-account", slot, report.Fix{Where: report.OnHost, Note: "where nobody needs that account: userdel " + slot + ", then provision"}, "%v", err)
		}
		if exists || user != "" {
			names = append(names, slot)
		}
	}
	r.showLogins(names)
	return names
}

func (r *run) provision() report.Fix {
	return report.Fix{Where: report.Operator, Argv: []string{"agentworks-deploy", "provision", r.Host}}
}

func (r *run) fail(check, slot string, fix report.Fix, format string, args ...any) {
	r.rows = append(r.rows, report.Row{State: report.Fail, Check: check, Slot: slot, Detail: fmt.Sprintf(format, args...), Fix: &fix})
}

// showMaxCommands tells the bound that slotctl keeps, from the file that slotctl
// reads.
func (r *run) showMaxCommands() int {
	file := r.SlotctlConfig()
	data, err := os.ReadFile(filepath.Join(r.sys.Root, file))
	var config *slots.Config
	if err == nil {
		config, err = slots.ParseConfig(data)
	}
	if err != nil {
		r.row(report.Warn, "max-commands", "", "not known: %v", err)
		return 0
	}
	r.row(report.Info, "max-commands", "", "%d commands of one slot may run at once (%s)", config.MaxCommands, file)
	return config.MaxCommands
}

// showTable holds the file against root:<product> 0640 and opens it as the
// service account.
func (r *run) showTable() (TableStatus, error) {
	info, err := r.etc.Lstat(r.tableName())
	if err != nil {
		return TableStatus{}, err
	}
	t := TableStatus{Path: r.SlotTable(), Owner: r.userName(info.UID), Group: r.groupName(info.GID), Mode: fmt.Sprintf("%04o", info.Perm())}
	for _, wrong := range []struct {
		is    bool
		check string
		argv  []string
		text  string
	}{
		{info.UID != 0, "slot-table-owner", []string{"chown", "root", t.Path}, "owner " + t.Owner + ", not root"},
		{info.GID != r.service.gid, "slot-table-group", []string{"chgrp", r.Product, t.Path}, "group " + t.Group + ", not " + r.Product},
		{info.Perm() != tableMode, "slot-table-mode", []string{"chmod", "0640", t.Path}, "mode " + t.Mode + ", not 0640"},
	} {
		if wrong.is {
			r.fail(wrong.check, "", report.Fix{Where: report.OnHost, Argv: wrong.argv}, "%s: %s", t.Path, wrong.text)
		}
	}
	if n, err := r.etc.Open(r.tableName()); err == nil {
		acl, err := n.ACL(safefs.AccessACL)
		n.Close()
		if err != nil || acl != nil {
			r.fail("slot-table-acl", "", r.provision(), "%s has an ACL: whoever it names is let in beside root and %s", t.Path, r.Product)
		}
	}
	if st, err := r.etc.Stat(); err == nil && st.Perm()&0o022 != 0 {
		r.fail("slot-table-folder", "", r.provision(), "%s: mode %04o, so others than root can replace the table", r.Etc(), st.Perm())
	}
	if _, err := r.readAsService(); err != nil {
		fix := r.provision()
		if len(r.rows) > 0 { // what is wrong with the file itself
			fix = *r.rows[len(r.rows)-1].Fix
		}
		r.fail("slot-table-read", "", fix, "the service account %s is locked out, and so is every slot user: %v", r.Product, err)
	}
	if len(r.rows) == 0 {
		r.row(report.Pass, "slot-table", "", "%s %s:%s %s, readable by %s", t.Path, t.Owner, t.Group, t.Mode, r.Product)
	}
	return t, nil
}

// showSlot tells what is worth telling of one slot, and whose trees are open to
// it.
func (r *run) showSlot(s SlotStatus) error {
	switch {
	case s.User != "":
		if err := r.showTree(s); err != nil {
			return err
		}
	case !s.Clean() && r.has(s.Slot):
		r.row(report.Warn, "slot", s.Slot, "free, not clean: %s; %s", s.Residue, heldLast(s.Last))
	case !s.Clean():
		r.row(report.Info, "slot", s.Slot, "above slots.count, not clean: %s; %s", s.Residue, heldLast(s.Last))
	}
	strays, err := r.strays(s.Slot, s.User)
	for _, user := range strays {
		r.fail("user-tree", s.Slot, report.Fix{Where: report.OnHost, Argv: []string{"chgrp", "-R", r.Product, r.UserTree(user)}},
			"%s is open to %s, which %s does not hold", r.UserTree(user), s.Slot, user)
	}
	return err
}

// showTree holds the own folder of a holder's tree against how Assign leaves it.
func (r *run) showTree(s SlotStatus) error {
	if !r.has(s.Slot) { // told above, and no assign would mend it
		return nil
	}
	own, _ := r.account(s.Slot)
	info, err := r.users.Lstat(s.User)
	wrong := ""
	switch {
	case err != nil:
		wrong = "is missing"
	case !info.IsDir():
		wrong = "is a " + info.Kind()
	default:
		wrong = safefs.Exact(r.service.uid, own.gid, treeMode).Diff(info)
	}
	if wrong != "" {
		r.fail("user-tree", s.Slot, report.Fix{Where: report.Operator, Argv: []string{"agentworks-deploy", "slots", "assign", r.Host, s.User}},
			"%s: %s", r.UserTree(s.User), strings.TrimSpace(wrong))
	}
	return nil
}

func (r *run) userName(uid int) string {
	for _, u := range r.db.Users() {
		if int(u.UID) == uid {
			return u.Name
		}
	}
	return fmt.Sprint(uid)
}

func (r *run) groupName(gid int) string {
	for _, g := range r.db.Groups() {
		if int(g.GID) == gid {
			return g.Name
		}
	}
	return fmt.Sprint(gid)
}
