package onhost

import (
	"context"
	"time"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/slottable"
)

// SlotsArgs are the arguments of slots-assign and slots-release; the latter
// takes the user alone.
type SlotsArgs struct {
	User  string `json:"user"`
	Slot  string `json:"slot,omitempty"`
	Adopt bool   `json:"adopt,omitempty"`
}

// SlotsData is what they answer beside the rows.
type SlotsData struct {
	User string `json:"user"`
	Slot string `json:"slot"`
}

// SlotsStatus is what slots-status answers beside the rows.
type SlotsStatus = slottable.Status

// slotsWait lets administrators who assign at the same moment take turns, which
// last milliseconds (case T-05).
const slotsWait = 10 * time.Second

func verbSlotsAssign() Verb {
	return Verb{Role: remote.Admin, Lock: true, LockWait: slotsWait, Run: changeSlots(slottable.Assign)}
}

func verbSlotsRelease() Verb {
	return Verb{Role: remote.Admin, Lock: true, LockWait: slotsWait, Run: changeSlots(slottable.Release)}
}

// verbSlotsRebuild takes no arguments.
func verbSlotsRebuild() Verb {
	return Verb{Role: remote.Admin, Lock: true, LockWait: slotsWait, Run: func(ctx context.Context, s *Session) ([]report.Row, error) {
		req := slottable.On(&s.Request.Host)
		req.Plan = s.Request.Plan
		return slottable.Rebuild(ctx, slottable.ThisHost(), req)
	}}
}

func verbSlotsStatus() Verb {
	return Verb{Role: remote.Admin, Run: func(ctx context.Context, s *Session) ([]report.Row, error) {
		status, rows, err := slottable.Show(ctx, slottable.ThisHost(), slottable.On(&s.Request.Host))
		s.Data = status
		return rows, err
	}}
}

type slotChange func(context.Context, slottable.System, slottable.Request) (string, []report.Row, error)

func changeSlots(change slotChange) func(context.Context, *Session) ([]report.Row, error) {
	return func(ctx context.Context, s *Session) ([]report.Row, error) {
		var args SlotsArgs
		if err := s.Args(&args); err != nil {
			return nil, err
		}
		req := args.on(&s.Request.Host)
		req.Plan = s.Request.Plan
		slot, rows, err := change(ctx, slottable.ThisHost(), req)
		if slot != "" {
			s.Data = SlotsData{User: args.User, Slot: slot}
		}
		return rows, err
	}
}

// Check refuses words that are wrong whatever the state of the host (exit 2).
func (a SlotsArgs) Check(host *hosts.Host) error { return a.on(host).Check() }

// on is what the arguments ask of the slot table of host.
func (a SlotsArgs) on(host *hosts.Host) slottable.Request {
	req := slottable.On(host)
	req.User, req.Slot, req.Adopt = a.User, a.Slot, a.Adopt
	return req
}
