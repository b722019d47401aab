package slottable

import (
	"context"
	"errors"
	"fmt"

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
	slot, holds, err := r.pick()
	if err != nil {
		return "", err
	}
	if !holds {
		if err := r.clean(slot); err != nil {
			return "", err
		}
	}
	// Before the slot is somebody's, no other tree may be open to it.
	strays, err := r.strays(slot, r.User)
	if err != nil {
		return "", err
	}
	for _, user := range strays {
		if err := r.takeTree(ctx, user, slot, "was still open to "+slot+", given back"); err != nil {
			return "", err
		}
	}
	if holds {
		r.row(report.OK, "slot-table", slot, "%s holds %s already", r.User, slot)
		err = r.keepReadable()
	} else {
		r.did("slot-table", slot, "%s holds %s", r.User, slot)
		err = r.write(slot, r.User)
	}
	if err != nil {
		return "", err
	}
	return slot, r.giveTree(ctx, r.User, slot)
}

// pick chooses the slot (case T-03); holds says that the user has it already.
func (r *run) pick() (slot string, holds bool, err error) {
	if held := r.table.Slot(r.User); held != "" {
		if r.Slot != "" && r.Slot != held {
			return "", false, report.Coded(report.ExitState, "%s holds %s already, and a user holds one slot; next: agentworks-deploy slots release %s %s", r.User, held, r.Host, r.User)
		}
		if _, ok := r.account(held); !ok {
			return "", false, r.notProvisioned(fmt.Errorf("%s holds %s, and there is no such account", r.User, held))
		}
		return held, true, nil
	}
	if r.Slot != "" {
		if user := r.table.User(r.Slot); user != "" {
			return "", false, report.Coded(report.ExitState, "%s is held by %s", r.Slot, user)
		}
		return r.Slot, false, nil
	}
	for _, name := range r.names() {
		if r.table.User(name) == "" {
			return name, false, nil
		}
	}
	return "", false, report.Coded(report.ExitState, "no free slot: all %d are held", r.Count)
}

// clean refuses a slot in which somebody else left something (case T-12).
func (r *run) clean(slot string) error {
	found, err := r.residues(slot)
	if err != nil {
		return err
	}
	res, last := found[slot], r.history.last(slot)
	if res.Clean() || last == r.User {
		return nil
	}
	who := "nobody knows who left it"
	if last != "" {
		who = last + " left it"
	}
	if r.Adopt {
		r.row(report.Warn, "slot-residue", slot, "taken over with %s; %s", res, who)
		return nil
	}
	return report.Coded(report.ExitState, "%s is free but not clean: %s; %s; next: name another slot, clear this one, or take it over with --adopt", slot, res, who)
}
