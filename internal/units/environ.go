package units

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/safefs"
)

// Running is what the service manager says of one service. PID is 0 while it
// does not run.
type Running struct {
	PID   int
	State string // ActiveState, or why there is no manager to ask
	// Unit is all that the manager says; zero where there is none.
	Unit UnitState
}

// Running asks for one unit. A manager that is not there is no error: nothing
// of its runs.
func (m *Manager) Running(ctx context.Context, unit string) (Running, error) {
	states, err := m.States(ctx, []string{unit})
	if errors.Is(err, errNoManager) {
		return Running{State: errNoManager.Error()}, nil
	}
	if err != nil {
		return Running{}, err
	}
	return Running{PID: states[0].MainPID, State: states[0].Active, Unit: states[0]}, nil
}

// Told is what a service was started with or, while it does not run, what the
// next start reads.
type Told struct {
	Assignments []hosts.Assignment // each name once
	// Note says that they come from the file, and why; empty for a running
	// service.
	Note string
}

// Lookup gives the value of name; "" where there is none.
func (t Told) Lookup(name string) string {
	for _, a := range t.Assignments {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// Environment takes the environment of unit from proc(5), mounted at proc. Only
// a service that does not run sends it to the file envFile, which wins over the
// unit's own settings; one that runs and cannot be read is an error, since the
// file may say something else than what the service was started with (case
// V-03). Without envFile nothing stands in for it. ask is Manager.Running.
func Environment(ctx context.Context, ask func(ctx context.Context, unit string) (Running, error), proc, unit, envFile string) (Told, error) {
	u, err := ask(ctx, unit)
	if err != nil {
		return Told{}, fmt.Errorf("ask for %s: %w", unit, err)
	}
	if u.PID != 0 {
		found, err := ReadEnviron(proc, u.PID)
		if err != nil {
			return Told{}, fmt.Errorf("read the environment of %s (pid %d): %w", unit, u.PID, err)
		}
		return Told{Assignments: found}, nil
	}
	if envFile == "" {
		return Told{Note: fmt.Sprintf("%s is not running (%s)", unit, u.State)}, nil
	}
	t := Told{Note: fmt.Sprintf("%s is not running (%s); settings come from %s", unit, u.State, envFile)}
	all, err := ReadEnvFile(envFile)
	if errors.Is(err, fs.ErrNotExist) {
		t.Note += ", which does not exist"
		return t, nil
	}
	if err != nil {
		return Told{}, fmt.Errorf("%s is not running, and %s cannot be read: %w", unit, envFile, err)
	}
	// The last of two assignments in a file is the one the service gets.
	at := map[string]int{}
	for _, a := range all {
		if i, again := at[a.Name]; again {
			t.Assignments[i] = a
			continue
		}
		at[a.Name] = len(t.Assignments)
		t.Assignments = append(t.Assignments, a)
	}
	return t, nil
}

// maxEnvFile bounds what is read of an environment file.
const maxEnvFile = 4 << 20

// ReadEnvFile reads a unit's environment file, which is the service's own, as it
// stands: a name may come twice. fs.ErrNotExist where there is none.
func ReadEnvFile(name string) ([]hosts.Assignment, error) {
	data, err := safefs.ReadFile(name, maxEnvFile)
	if err != nil {
		return nil, err
	}
	return hosts.ParseEnvironmentFile(data)
}

// ReadEnviron reads what process pid was started with, by proc(5) mounted at proc.
// Its errors hold no path.
func ReadEnviron(proc string, pid int) ([]hosts.Assignment, error) {
	data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "environ"))
	if err != nil {
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err
		}
		return nil, err
	}
	return parseEnviron(data), nil
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
