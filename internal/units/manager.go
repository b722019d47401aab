// Package units asks systemd about a product's services and tells what they were
// started with: the environment of a running one, else the file that the next
// start reads. It knows the service manager and /proc, not what a service is
// for. It may import hosts and safefs; only packages that work on the host import it.
package units

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Manager reaches the systemd that runs a product's services.
type Manager struct {
	Systemctl, Journalctl string // absolute programs
	User                  bool   // the account's own manager (systemctl --user), else the host's
	UID                   int
}

// errNoManager says that there is no service manager of this account: nothing of
// it runs.
var errNoManager = errors.New("no service manager of this account runs")

// NewManager is the manager a host file names: "user", of the account uid, or
// "system".
func NewManager(manager string, uid int) *Manager {
	return &Manager{Systemctl: "/usr/bin/systemctl", Journalctl: "/usr/bin/journalctl", User: manager != "system", UID: uid}
}

// UnitState is one unit as its manager sees it at one moment. Restarts counts
// those that nobody asked for (NRestarts). Started is when the main process began,
// in microseconds of the monotonic clock.
type UnitState struct {
	Name              string
	Load, Active, Sub string
	MainPID           int
	Restarts          int
	Result            string
	File, FileState   string // its unit file, and whether that is enabled
	Started           uint64
	Unmet             bool // its last start was skipped: a condition of its unit is not met
}

// Running tells whether the unit's service is up.
func (u UnitState) Running() bool { return u.Active == "active" && u.Sub == "running" && u.MainPID > 0 }

// String is "vs-agent.service is failed (failed), result exit-code, restarted 5
// time(s) by itself".
func (u UnitState) String() string {
	s := fmt.Sprintf("%s is %s (%s)", u.Name, u.Active, u.Sub)
	if u.Result != "" && u.Result != "success" {
		s += ", result " + u.Result
	}
	if u.Unmet {
		s += ", not started: a condition of its unit is not met"
	}
	if u.Restarts > 0 {
		s += fmt.Sprintf(", restarted %d time(s) by itself", u.Restarts)
	}
	return s
}

// ServiceUnit is the unit of a service named in a host file.
func ServiceUnit(service string) string {
	if strings.HasSuffix(service, ".service") {
		return service
	}
	return service + ".service"
}

// run runs systemctl with our own environment: the user's manager is found by
// XDG_RUNTIME_DIR, which a channel's session may not have.
func (m *Manager) run(ctx context.Context, args ...string) (string, error) {
	if m.User {
		args = append([]string{"--user"}, args...)
	}
	out, err := m.command(ctx, m.Systemctl, append([]string{"--no-ask-password", "--no-pager"}, args...)...)
	if err != nil {
		return "", fmt.Errorf("systemctl %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

func (m *Manager) command(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	if m.User {
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR=/run/user/"+strconv.Itoa(m.UID))
	}
	cmd.WaitDelay = 2 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(errs.String())
		if strings.HasPrefix(text, "Failed to connect to bus: No such file or directory") {
			return "", fmt.Errorf("%w: %s", errNoManager, text)
		}
		if text != "" {
			err = fmt.Errorf("%w: %s", err, strings.ReplaceAll(text, "\n", "; "))
		}
		return "", errors.Join(ctx.Err(), err)
	}
	return out.String(), nil
}

// States asks for all units at once, in the order given.
func (m *Manager) States(ctx context.Context, units []string) ([]UnitState, error) {
	if len(units) == 0 {
		return nil, nil
	}
	args := append([]string{"show", "--property=Id,LoadState,ActiveState,SubState,MainPID,NRestarts,Result,FragmentPath,UnitFileState,ExecMainStartTimestampMonotonic,ConditionResult,ConditionTimestampMonotonic", "--"}, units...)
	out, err := m.run(ctx, args...)
	if err != nil {
		return nil, err
	}
	states, err := parseStates(out)
	if err == nil && len(states) != len(units) {
		err = fmt.Errorf("%d units asked, %d answered", len(units), len(states))
	}
	if err != nil {
		return nil, fmt.Errorf("systemctl show %s: %w", strings.Join(units, " "), err)
	}
	for i := range states {
		states[i].Name = units[i]
	}
	return states, nil
}

// parseStates reads blocks of key=value lines with an empty line between them.
func parseStates(out string) ([]UnitState, error) {
	var states []UnitState
	var u *UnitState
	pids := 0
	var no, looked bool // a condition that was never looked at also shows "no"
	lines := bufio.NewScanner(strings.NewReader(out))
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			u, no, looked = nil, false, false
			continue
		}
		if u == nil {
			states = append(states, UnitState{})
			u = &states[len(states)-1]
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("a line without =: %q", line)
		}
		var err error
		switch key {
		case "LoadState":
			u.Load = value
		case "ActiveState":
			u.Active = value
		case "SubState":
			u.Sub = value
		case "Result":
			u.Result = value
		case "FragmentPath":
			u.File = value
		case "UnitFileState":
			u.FileState = value
		case "ExecMainStartTimestampMonotonic":
			u.Started, err = strconv.ParseUint(value, 10, 64)
		case "ConditionResult", "ConditionTimestampMonotonic":
			no = no || key == "ConditionResult" && value == "no"
			looked = looked || key != "ConditionResult" && value != "0"
			u.Unmet = no && looked
		case "MainPID":
			if u.MainPID, err = strconv.Atoi(value); u.MainPID < 0 {
				err = fmt.Errorf("%d is no process", u.MainPID)
			}
			pids++
		case "NRestarts":
			u.Restarts, err = strconv.Atoi(value)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	if pids != len(states) {
		return nil, errors.New("a unit without MainPID")
	}
	return states, lines.Err()
}

// Restart restarts the units. Their count of starts is forgotten first: systemd
// refuses one that failed too often, or that several deploys within seconds
// started. A unit that is not loaded has no such count.
func (m *Manager) Restart(ctx context.Context, units []string) error {
	for _, u := range units {
		if _, err := m.run(ctx, "reset-failed", "--", u); err != nil && !strings.Contains(err.Error(), "not loaded") {
			return err
		}
	}
	if len(units) == 0 {
		return nil
	}
	_, err := m.run(ctx, append([]string{"restart", "--"}, units...)...)
	return err
}

// JournalCommand is how root reads what Journal may not: a system account's
// messages go to the host's journal, which not every service may read.
func (m *Manager) JournalCommand(unit string, n int, since time.Time) string {
	words := "journalctl -n " + strconv.Itoa(n)
	if !since.IsZero() {
		words += " --since=" + journalTime(since)
	}
	if m.User {
		return fmt.Sprintf("%s _UID=%d _SYSTEMD_USER_UNIT=%s", words, m.UID, unit)
	}
	return words + " -u " + unit
}

// Journal is a unit's last n journal lines with their times, none before since;
// zero is the beginning.
func (m *Manager) Journal(ctx context.Context, unit string, n int, since time.Time) ([]string, error) {
	args := []string{"--quiet", "--no-pager", "--output=short-iso", "--no-hostname", "--lines=" + strconv.Itoa(n)}
	if !since.IsZero() {
		args = append(args, "--since="+journalTime(since))
	}
	which := "--unit=" + unit
	if m.User {
		which = "--user-unit=" + unit
	}
	out, err := m.command(ctx, m.Journalctl, append(args, which)...)
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", unit, err)
	}
	if strings.TrimSpace(out) == "" {
		return nil, nil
	}
	return strings.Split(strings.TrimRight(out, "\n"), "\n"), nil
}

// journalTime is t as journalctl reads it, to the microsecond: a restart's first
// second also holds what the process before it said.
func journalTime(t time.Time) string {
	return fmt.Sprintf("@%d.%06d", t.Unix(), t.Nanosecond()/1000)
}
