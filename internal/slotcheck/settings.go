package slotcheck

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/sandbox/slots"
	"agentworks-deploy/internal/units"
)

// settings are what the platform was told about slots: the keys of settingKeys
// and no others (case S-11). Nothing of it is handed on to a program but
// through the parameters of the chain.
type settings map[string]string

// The names of the settings; see "Environment names" in docs/formats.md.
const (
	keySlots       = slots.EnvMode
	keyPrefix      = slots.EnvPrefix
	keySlotctl     = "AGENTWORKS_SLOTCTL"
	keyConfig      = "AGENTWORKS_SLOTCTL_CONFIG"
	keyTable       = slots.EnvTable
	keyProfile     = "AGENT_BROWSER_SHARED_PROFILE"
	keyProfileRoot = "AGENT_BROWSER_PROFILE_ROOT"
	keySystemPaths = "SANDBOX_EXTRA_SYSTEM_PATHS"
	keyState       = "AGENTWORKS_STATE_ROOT"
	keyDocs        = "WORKSPACE_DOCS_PATH"
)

func settingKeys() []string {
	return []string{keySlots, keyPrefix, keySlotctl, keyConfig, keyTable, keyProfile, keyProfileRoot,
		"AGENTWORKS_BROWSER_SESSION_PREFIX", "AGENT_BROWSER_EXECUTABLE_PATH", keySystemPaths, keyState, keyDocs}
}

// or gives the setting or, where it is absent or empty, what the platform falls
// back to.
func (s settings) or(key, fallback string) string {
	if v := s[key]; v != "" {
		return v
	}
	return fallback
}

// loadSettings takes the settings of the running workspace service. Only a
// service that does not run sends it to <app>/.env, and note then says so; one
// that runs and cannot be read is an error, since the file may say something
// else than what the service was started with (case V-03).
func loadSettings(ctx context.Context, sys System, h *hosts.Host) (s settings, note string, err error) {
	l := h.Layout()
	told, err := units.Environment(ctx, sys.Unit, sys.Proc, l.Product+"-workspace.service", l.EnvFile())
	if err != nil {
		return nil, "", err
	}
	return pick(told.Assignments), told.Note, nil
}

func pick(assignments []hosts.Assignment) settings {
	keys, s := settingKeys(), settings{}
	for _, a := range assignments {
		if slices.Contains(keys, a.Name) {
			s[a.Name] = a.Value
		}
	}
	return s
}

// cause strips the path from a file error where the message already has one.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
