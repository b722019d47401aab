package onhost

import (
	"context"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/slotcheck"
)

// SlotcheckArgs are the arguments of the verb slotcheck; see slotcheck.Ask.
type SlotcheckArgs struct {
	Level    slotcheck.Level `json:"level"`
	Local    bool            `json:"local,omitempty"`
	TestSlot string          `json:"test_slot,omitempty"`
	Release  string          `json:"release,omitempty"`
}

// SlotcheckData is what its envelope carries beside the rows.
type SlotcheckData struct {
	Release string `json:"release"`
}

func verbSlotcheck() Verb {
	return Verb{Role: remote.Service, Run: runSlotcheck}
}

func runSlotcheck(ctx context.Context, s *Session) ([]report.Row, error) {
	var args SlotcheckArgs
	if err := s.Args(&args); err != nil {
		return nil, err
	}
	host := s.Request.Host
	answer, err := slotcheck.Run(ctx, slotcheck.ThisHost(host.Release.Manager), slotcheck.Ask{
		Host: host, Level: args.Level, Local: args.Local, TestSlot: args.TestSlot, Release: args.Release,
	})
	s.Data = SlotcheckData{Release: answer.Release}
	return answer.Rows, err
}
