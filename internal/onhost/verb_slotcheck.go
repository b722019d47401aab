package onhost

import (
	"context"

	"agentworks-deploy/internal/admission"
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
	// Scanned says that the secrets' admission is among the rows or, where the
	// operator's side asks Vault, in Facts.
	Scanned bool             `json:"scanned"`
	Facts   *admission.Facts `json:"facts,omitempty"`
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
	data := SlotcheckData{Release: answer.Release}
	if err == nil {
		// Never a failure of the self-test: a scan that cannot run is a note.
		facts, rows, bad := scanSecrets(ctx, &host)
		if bad != nil {
			rows = append(rows, report.Row{State: report.Info, Check: "secret-admission", Detail: "not checked: " + bad.Error()})
		}
		data.Scanned, data.Facts, answer.Rows = true, facts, append(answer.Rows, rows...)
	}
	s.Data = data
	return answer.Rows, err
}
