package slotcheck

import (
	"context"
	"errors"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/sandbox/shell"
)

// Chain is the way from the service account, as which the process runs, to the
// slots of this host, with the settings of the running service: what the probes
// use, for other commands.
func Chain(ctx context.Context, sys System, host hosts.Host) (*shell.Chain, error) {
	settings, _, err := loadSettings(ctx, sys, &host)
	if err != nil {
		return nil, err
	}
	a := &audit{sys: sys, ask: Ask{Host: host}, layout: host.Layout()}
	if err := a.derive(ctx, settings); err != nil {
		return nil, err
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
