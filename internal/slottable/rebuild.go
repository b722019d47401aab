package slottable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/sandbox/slots"
)

// unreadable is the name beside the table under which one that nobody can read
// is kept, for a person to look at.
const unreadable = ".unreadable"

// Rebuild writes the table anew where it is gone or no program can read it.
// Users' trees are what it goes by: whose tree has a slot's group holds that
// slot, since only Assign gives it. A table that can be read stays as it is, and
// so does one where two trees have one slot's group: a person has to say who
// holds it. The old text is kept beside the new.
func Rebuild(ctx context.Context, sys System, req Request) (rows []report.Row, err error) {
	r := &run{Request: req, sys: sys}
	err = r.open(ctx, "slots-rebuild")
	defer func() { err = errors.Join(err, r.close()) }()
	if errors.Is(err, fs.ErrNotExist) {
		err = r.notProvisioned(err)
	}
	if err == nil {
		err = r.rebuild()
	}
	return r.rows, err
}

func (r *run) rebuild() error {
	old, err := r.etc.ReadFile(r.tableName(), maxTable)
	gone := errors.Is(err, fs.ErrNotExist)
	if errors.Is(err, safefs.ErrNotRegular) || errors.Is(err, unix.ELOOP) {
		return report.Coded(report.ExitState, "%w; next, on the host: look at it, then %s; then the same again", err, aside(r.etc, r.tableName(), r.SlotTable()))
	}
	if err != nil && !gone {
		return err
	}
	if _, err := parseTable(old, r.Prefix); err == nil {
		r.row(report.OK, "slot-table", "", "%s can be read: nothing to do", r.SlotTable())
		return nil
	}
	held, err := r.heldByTrees()
	if err != nil {
		return err
	}
	text, err := encode(nil, "slots", held)
	if err != nil {
		return fmt.Errorf("write %s anew: %w", r.SlotTable(), err)
	}
	for _, slot := range r.names() {
		if user := held[slot]; user != "" {
			r.did("slot-table", slot, "%s holds %s, as the group of the user's tree says", user, slot)
		}
	}
	if len(held) == 0 {
		r.did("slot-table", "", "%s is empty: no user's tree has the group of a slot", r.SlotTable())
	}
	if !gone {
		r.did("slot-table", "", "%s keeps what nobody could read", r.SlotTable()+unreadable)
	}
	if r.Plan {
		return nil
	}
	if !gone {
		keep := safefs.Content{From: bytes.NewReader(old), UID: 0, GID: 0, Mode: historyMode}
		if err := r.etc.Replace(r.tableName()+unreadable, keep); err != nil {
			return report.Coded(report.ExitState, "the old slot table was not kept, so it stays: %w", err)
		}
	}
	table := safefs.Content{From: bytes.NewReader(text), UID: 0, GID: r.service.gid, Mode: tableMode}
	if err := r.etc.Replace(r.tableName(), table); err != nil {
		return report.Coded(report.ExitState, "the slot table was not written: %w", err)
	}
	return r.readBack(text)
}

// heldByTrees says who holds which slot by the groups of the users' trees.
func (r *run) heldByTrees() (map[string]string, error) {
	group := map[int]string{}
	for _, slot := range r.names() {
		if own, ok := r.account(slot); ok {
			group[own.gid] = slot
		}
	}
	names, err := r.users.Names()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	held := map[string]string{}
	var twice []string
	for _, user := range names {
		if !slots.ValidUserID(user) {
			continue
		}
		st, err := r.users.Lstat(user)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		slot := group[st.GID]
		switch {
		case !st.IsDir() || slot == "" || st.UID != r.service.uid:
		case held[slot] != "":
			twice = append(twice, fmt.Sprintf("%s and %s have that of %s", held[slot], user, slot))
		default:
			held[slot] = user
		}
	}
	if twice != nil {
		return nil, report.Coded(report.ExitState, "the groups of the users' trees do not say who holds what: %s; next, on the host: chgrp %s %s of those who hold none",
			strings.Join(twice, "; "), r.Product, path.Join(r.Users(), "<user>"))
	}
	return held, nil
}
