package fleet

import (
	"context"
	"encoding/json"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/report"
)

// AssignSlot gives a user of host a slot, and ReleaseSlot takes it away. Wrong
// words are refused before the host is asked.
func (f *Fleet) AssignSlot(ctx context.Context, host *hosts.Host, args onhost.SlotsArgs, plan bool) (onhost.Envelope, error) {
	return f.changeSlots(ctx, host, "slots-assign", args, plan)
}

// ReleaseSlot: see AssignSlot.
func (f *Fleet) ReleaseSlot(ctx context.Context, host *hosts.Host, args onhost.SlotsArgs, plan bool) (onhost.Envelope, error) {
	return f.changeSlots(ctx, host, "slots-release", args, plan)
}

// RebuildSlots writes the table anew from the users' trees where no program can
// read it.
func (f *Fleet) RebuildSlots(ctx context.Context, host *hosts.Host, plan bool) (onhost.Envelope, error) {
	return f.call(ctx, host, call{verb: "slots-rebuild", plan: plan})
}

func (f *Fleet) changeSlots(ctx context.Context, host *hosts.Host, verb string, args onhost.SlotsArgs, plan bool) (onhost.Envelope, error) {
	if err := args.Check(host); err != nil {
		return onhost.Envelope{}, err
	}
	return f.call(ctx, host, call{verb: verb, args: args, plan: plan})
}

// Slots is who holds what on one host; see onhost.SlotsStatus.
type Slots struct {
	V    int    `json:"v"`
	Host string `json:"host"`
	onhost.SlotsStatus
	Rows []report.Row `json:"rows"`
	Exit int          `json:"exit"`
}

// SlotsStatus looks at the slots of host. Rows found before a failure come with
// its error.
func (f *Fleet) SlotsStatus(ctx context.Context, host *hosts.Host) (Slots, error) {
	e, err := f.call(ctx, host, call{verb: "slots-status"})
	s := Slots{V: 1, Host: host.Name, Rows: e.Rows, Exit: e.Exit}
	if len(e.Data) > 0 {
		if bad := json.Unmarshal(e.Data, &s.SlotsStatus); bad != nil && err == nil {
			err = report.Coded(report.ExitUnfinished, "read the answer of slots-status: %w", bad)
		}
	}
	if err != nil {
		s.Exit = report.CodeOf(err)
	}
	return s, err
}
