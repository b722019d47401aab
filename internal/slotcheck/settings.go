package slotcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"agentworks-deploy/internal/hosts"
)

// Settings are what the platform was told about slots: the keys of settingKeys
// and no others (case S-11). Nothing of it is handed on to a program but
// through the parameters of the chain.
type Settings map[string]string

// The names of the settings; see "Environment names" in docs/formats.md.
const (
	keySlots       = "AGENTWORKS_SLOTS"
	keyPrefix      = "AGENTWORKS_SLOT_PREFIX"
	keySlotctl     = "AGENTWORKS_SLOTCTL"
	keyConfig      = "AGENTWORKS_SLOTCTL_CONFIG"
	keyTable       = "AGENTWORKS_SLOTS_FILE"
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

// mode is "on", "optin" or "" for off; the comparison ignores case.
func (s Settings) mode() string {
	m := strings.ToLower(s[keySlots])
	if m == "on" || m == "optin" {
		return m
	}
	return ""
}

// or gives the setting or, where it is absent or empty, what the platform falls
// back to.
func (s Settings) or(key, fallback string) string {
	if v := s[key]; v != "" {
		return v
	}
	return fallback
}

// Unit is what the service manager says of one service. PID is 0 while it does
// not run.
type Unit struct {
	PID   int
	State string // ActiveState, or why there is no manager to ask
}

// loadSettings takes the settings of the running workspace service. Only a
// service that does not run sends it to <app>/.env, and note then says so; one
// that runs and cannot be read is an error, since the file may say something
// else than what the service was started with (case V-03).
func loadSettings(ctx context.Context, sys System, h *hosts.Host) (s Settings, note string, err error) {
	l := h.Layout()
	unit := l.Product + "-workspace.service"
	u, err := sys.Unit(ctx, unit)
	if err != nil {
		return nil, "", fmt.Errorf("ask for %s: %w", unit, err)
	}
	if u.PID != 0 {
		data, err := os.ReadFile(filepath.Join(sys.Proc, strconv.Itoa(u.PID), "environ"))
		if err != nil {
			return nil, "", fmt.Errorf("read the environment of %s (pid %d): %w", unit, u.PID, cause(err))
		}
		return pick(parseEnviron(data)), "", nil
	}
	note = fmt.Sprintf("%s is not running (%s); settings come from %s", unit, u.State, l.EnvFile())
	data, err := os.ReadFile(l.EnvFile())
	if errors.Is(err, fs.ErrNotExist) {
		return Settings{}, note + ", which does not exist", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s is not running, and its settings cannot be read: %w", unit, err)
	}
	assignments, err := hosts.ParseEnvironmentFile(data)
	if err != nil {
		return nil, "", fmt.Errorf("%s is not running, and %s cannot be read: %w", unit, l.EnvFile(), err)
	}
	return pick(assignments), note, nil
}

// parseEnviron reads /proc/<pid>/environ. The first of two entries of one name
// is the one getenv answers with.
func parseEnviron(data []byte) []hosts.Assignment {
	var found []hosts.Assignment
	seen := map[string]bool{}
	for entry := range bytes.SplitSeq(data, []byte{0}) {
		name, value, ok := strings.Cut(string(entry), "=")
		if ok && !seen[name] {
			seen[name] = true
			found = append(found, hosts.Assignment{Name: name, Value: value})
		}
	}
	return found
}

func pick(assignments []hosts.Assignment) Settings {
	keys, s := settingKeys(), Settings{}
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
