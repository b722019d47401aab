package slottable

import (
	"context"
	"errors"

	"agentworks-deploy/internal/report"
)

// Release takes req.User's slot away: the tree goes back to the service, what is
// in the slot's own folders stays, and who held it is noted. It answers with the
// slot, and with a row for each thing looked at or changed; the rows are true
// also beside an error.
func Release(ctx context.Context, sys System, req Request) (slot string, rows []report.Row, err error) {
	if err := req.Check(); err != nil {
		return "", nil, err
	}
	r, err := begin(ctx, sys, req, "slots-release")
	defer func() { err = errors.Join(err, r.close()) }()
	if err != nil {
		return "", nil, err
	}
	slot, err = r.release(ctx)
	return slot, r.rows, err
}

func (r *run) release(ctx context.Context) (string, error) {
	slot := r.table.Slot(r.User)
	if slot == "" {
		next := "agentworks-deploy slots status " + r.Host + " says who holds what"
		if holder := r.table.User(r.User); holder != "" { // a slot where a user belongs
			next = "agentworks-deploy slots release " + r.Host + " " + holder + ", who holds that slot"
		}
		return "", report.Coded(report.ExitState, "%s holds no slot; next: %s", r.User, next)
	}
	take := func(dry bool) error { return r.takeTree(ctx, r.User, slot, "given back to "+r.Product, dry) }
	if err := r.rehearse(take); err != nil {
		return "", err
	}
	if err := take(r.Plan); err != nil {
		return "", err
	}
	if _, ok := r.own(slot); !ok { // the table alone knows it, and gives it up
		r.row(report.Info, "slot-account", slot, "there is no account of that slot")
	} else if err := r.disarm(ctx, slot); err != nil {
		return "", err
	}
	if err := r.note(slot, r.User); err != nil {
		return "", err
	}
	if err := r.write(slot, "", slot+" is free, left by "+r.User); err != nil {
		return "", err
	}
	found, err := r.residues(slot)
	if err != nil {
		return "", err
	}
	switch res := found[slot]; {
	case res.Clean():
	case r.has(slot):
		r.row(report.Warn, "slot-residue", slot, "left in place: %s; only %s gets this slot again without --adopt", res, r.User)
	default:
		r.row(report.Info, "slot-residue", slot, "left in place: %s; nobody gets this slot: %s", res, r.aboveCount(slot))
	}
	return slot, nil
}
