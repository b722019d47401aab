package slotcheck

import (
	"context"
	"errors"
	"path/filepath"
)

func (a *audit) confined(ctx context.Context, s subject, script string, words ...string) (outcome, error) {
	return outcome{}, errors.New("TODO")
}

// probeDir is where a slot's probes run: its own state folder.
func (a *audit) probeDir(s subject) string { return a.layout.SlotState(s.Slot) }

// stateRoot is the app's private state.
func (a *audit) stateRoot() string { return filepath.Clean(a.settings.or(keyState, a.layout.State())) }

func (a *audit) profileRoots() []string { return nil }
