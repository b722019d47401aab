package slotcheck

import (
	"context"
	"errors"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/shell"
	"agentworks-deploy/internal/sandbox/slots"
)

// Chain is the way from the service account, as which the process runs, to the
// slots of this host, with the settings of the running service: what the probes
// use, for other commands. An account that only has the name of slot is refused:
// the command would run as somebody else.
func Chain(ctx context.Context, sys System, host hosts.Host, slot string) (*shell.Chain, error) {
	settings, _, err := loadSettings(ctx, sys, &host)
	if err != nil {
		return nil, err
	}
	a := &audit{sys: sys, ask: Ask{Host: host}, layout: host.Layout()}
	if err := a.derive(ctx, settings); err != nil {
		return nil, err
	}
	if err := a.accounts.CheckSlot(slot, a.layout.SlotHome(slot)); slots.ValidSlot(a.layout.Prefix, slot) && err != nil && !errors.Is(err, accounts.ErrMissing) {
		return nil, report.Coded(report.ExitState, "%s is no slot of this host: %w; next: agentworks-deploy slots status %s", slot, err, host.Name)
	}
	if a.launcherErr != nil {
		return nil, a.launcherErr
	}
	if rows := a.loadConfig(); a.config == nil {
		return nil, errors.New(rows[0].Detail)
	}
	a.makeChain()
	return &a.chain, nil
}
