package slottable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"agentworks-deploy/internal/report"
)

// Assign gives req.User a slot and the slot the user's tree. A user who holds
// one gets the same one back. It answers with the slot, and with a row for each
// thing looked at or changed; the rows are true also beside an error.
func Assign(ctx context.Context, sys System, req Request) (slot string, rows []report.Row, err error) {
	if err := req.Check(); err != nil {
		return "", nil, err
	}
	r, err := begin(ctx, sys, req, "slots-assign")
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return "", nil, err
	}
	slot, err = r.assign(ctx)
	return slot, r.rows, err
}

func (r *run) assign(ctx context.Context) (string, error) {
	if _, ok := r.db.Group(r.SharedGroup()); !ok {
		return "", r.notProvisioned(fmt.Errorf("there is no group %s", r.SharedGroup()))
	}
	slot, holds, err := r.pick()
	if err != nil {
		return "", err
	}
	strays, err := r.strays(slot, r.User)
	if err != nil {
		return "", err
	}
	closeStrays := func(dry bool) error {
		for _, user := range strays {
			if err := r.takeTree(ctx, user, slot, "was still open to "+slot+", given back", dry); err != nil {
				return err
			}
		}
		return nil
	}
	give := func(dry bool) error { return r.giveTree(ctx, r.User, slot, dry) }
	for _, change := range []func(bool) error{closeStrays, give} {
		if err := r.rehearse(change); err != nil {
			return "", err
		}
	}
	// Before the slot is somebody's, no other tree may be open to it, and nobody
	// may start programs as it.
	if err := closeStrays(r.Plan); err != nil {
		return "", err
	}
	if holds {
		r.row(report.OK, "slot-table", slot, "%s holds %s already", r.User, slot)
		err = r.keepReadable()
	} else {
		if err := r.disarm(ctx, slot); err != nil {
			return "", err
		}
		err = r.write(slot, r.User, r.User+" holds "+slot)
	}
	if err != nil {
		return "", err
	}
	if err := give(r.Plan); err != nil {
		return slot, err
	}
	r.unknownUser()
	return slot, nil
}

// pick chooses the slot (case T-03); holds says that the user has it already.
func (r *run) pick() (slot string, holds bool, err error) {
	if held := r.table.Slot(r.User); held != "" {
		switch {
		case r.Slot != "" && r.Slot != held:
			return "", false, report.Coded(report.ExitState, "%s holds %s already, and a user holds one slot; next: agentworks-deploy slots release %s %s", r.User, held, r.Host, r.User)
		case !r.has(held):
			return "", false, report.Coded(report.ExitState, "%s holds %s, which no command can run as: %s; next: agentworks-deploy slots release %s %s", r.User, held, r.aboveCount(held), r.Host, r.User)
		}
		return held, true, r.identity(held)
	}
	if r.Slot != "" {
		if user := r.table.User(r.Slot); user != "" {
			return "", false, report.Coded(report.ExitState, "%s is held by %s; next: name another slot or none, or agentworks-deploy slots release %s %s", r.Slot, user, r.Host, user)
		}
		if err := r.identity(r.Slot); err != nil {
			return "", false, err
		}
		return r.Slot, false, r.clean(r.Slot)
	}
	slot, err = r.firstFree()
	return slot, false, err
}

// firstFree is the lowest slot that nobody holds and that is clean, or that the
// user left unclean; those passed over are told.
func (r *run) firstFree() (string, error) {
	var free, passed []string
	var unknown error
	for _, name := range r.names() {
		if r.table.User(name) != "" {
			continue
		}
		if err := r.identity(name); err != nil {
			unknown = cmp.Or(unknown, err)
			passed = append(passed, name+" (no account of its own)")
			continue
		}
		free = append(free, name)
	}
	if free == nil && unknown != nil {
		return "", unknown
	}
	if free == nil {
		return "", report.Coded(report.ExitState, "no free slot: all %d are held; next: agentworks-deploy slots release %s <user>, or a higher slots.count in the host file and provision", r.Count, r.Host)
	}
	found, err := r.residues(free...)
	if err != nil {
		return "", err
	}
	for _, name := range free {
		if res := found[name]; res.Clean() || r.Adopt || r.history.last(name) == r.User {
			if len(passed) > 0 {
				r.row(report.Info, "slot-residue", name, "passed over: %s; agentworks-deploy slots status %s says more", few(passed), r.Host)
			}
			return name, r.clean(name)
		}
		passed = append(passed, fmt.Sprintf("%s (%s)", name, found[name]))
	}
	if len(free) == 1 {
		return "", r.clean(free[0])
	}
	return "", report.Coded(report.ExitState, "no free slot is clean: %s; next: clear one (agentworks-deploy slots status %s says who held it last), or name one with --adopt", few(passed), r.Host)
}

// few words a list that may be long.
func few(list []string) string {
	const most = 5
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// clean refuses a slot in which somebody else left something (case T-12).
func (r *run) clean(slot string) error {
	found, err := r.residues(slot)
	if err != nil {
		return err
	}
	if gone := r.missingFolders(slot); gone != nil {
		return r.notProvisioned(gone)
	}
	res, last := found[slot], r.history.last(slot)
	if res.Clean() || last == r.User {
		return nil
	}
	who := heldLast(last)
	if r.Adopt {
		r.row(report.Warn, "slot-residue", slot, "taken over with %s; %s", res, who)
		return nil
	}
	return report.Coded(report.ExitState, "%s is free but not clean: %s; %s; next: name another slot, clear this one, or take it over with --adopt", slot, res, who)
}

// heldLast says whose the rest in a slot may be: of whoever held it last, and of
// those before, where it was taken over with what they had left.
func heldLast(user string) string {
	if user == "" {
		return "nobody knows who held it"
	}
	return user + " held it last"
}
