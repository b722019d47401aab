package slotcheck

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/units"
)

// service is one running service of the release.
type service struct {
	Unit      string
	PID       int                // of its main process
	Processes []accounts.Process // of the unit and what stems from it, under the service account
}

// services asks for the release's services and their processes. One that does
// not run is left out; its name is in idle.
func (a *audit) services(ctx context.Context) (running []service, idle []string, err error) {
	all, err := accounts.Processes(a.sys.Proc, a.service.UID)
	if err != nil {
		return nil, nil, err
	}
	names := a.ask.Host.Release.Services
	if len(names) == 0 {
		names = []string{a.layout.Product + "-workspace", a.layout.Product + "-agent"}
	}
	for _, name := range names {
		unit := units.ServiceUnit(name)
		u, err := a.sys.Unit(ctx, unit)
		if err != nil {
			return nil, nil, fmt.Errorf("ask for %s: %w", unit, err)
		}
		if u.PID == 0 {
			idle = append(idle, unit)
			continue
		}
		running = append(running, service{Unit: unit, PID: u.PID, Processes: stemming(all, unit, u.PID)})
	}
	return running, idle, nil
}

// units are the units of the services; told says that the host file names them.
func (a *audit) units() (names []string, told bool) {
	services := a.ask.Host.Release.Services
	if told = len(services) > 0; !told {
		services = []string{a.layout.Product + "-workspace", a.layout.Product + "-agent"}
	}
	for _, name := range services {
		names = append(names, units.ServiceUnit(name))
	}
	return names, told
}

// stemming picks the unit's processes out of all: those in its control group,
// and descendants that left it.
func stemming(all []accounts.Process, unit string, main int) []accounts.Process {
	in := map[int]bool{main: true}
	for _, p := range all {
		if p.InUnit(unit) {
			in[p.PID] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !in[p.PID] && in[p.Parent] {
				in[p.PID], grown = true, true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p accounts.Process) bool { return !in[p.PID] })
}

// exe is the file that pid runs, links resolved by the kernel.
func (a *audit) exe(pid int) (string, error) {
	return os.Readlink(filepath.Join(a.sys.Proc, strconv.Itoa(pid), "exe"))
}

// restartFix restarts units of the service manager, as root.
func (a *audit) restartFix(units ...string) *report.Fix {
	return a.systemctl(append([]string{"restart"}, units...)...)
}

// systemctl asks the manager of the services for something, as root.
func (a *audit) systemctl(words ...string) *report.Fix {
	argv := []string{"systemctl"}
	if !a.systemManager() {
		argv = append(argv, "--user", "-M", a.layout.Product+"@")
	}
	return hostFix(append(argv, words...)...)
}

func (a *audit) systemManager() bool { return a.ask.Host.Release.Manager == "system" }

// managerUnit is the user manager of the service account.
func (a *audit) managerUnit() string {
	return "user@" + strconv.FormatUint(uint64(a.service.UID), 10) + ".service"
}

// checkServiceGroups asks the kernel, not the account database: a process keeps
// the groups it was started with, and a user service those of its manager (case
// P-11).
func checkServiceGroups(ctx context.Context, a *audit, _ subject) []report.Row {
	running, idle, err := a.services(ctx)
	if err != nil {
		return unknown(err.Error())
	}
	if len(running) == 0 {
		return skip("no service runs: " + strings.Join(idle, ", "))
	}
	var want []uint32
	for _, u := range a.own() {
		want = append(want, u.GID)
	}
	var rows []report.Row
	for _, s := range running {
		for _, p := range s.Processes {
			missing := p.Lacks(want)
			if len(missing) == 0 {
				continue
			}
			fix := hostFix("systemctl", "restart", a.managerUnit())
			if a.systemManager() {
				fix = a.restartFix(s.Unit)
			}
			rows = append(rows, fail(fmt.Sprintf("%s (pid %d) lacks %d of %d slot groups, %s first: it was started before it got them",
				s.Unit, p.PID, len(missing), len(want), a.groupName(missing[0])), fix)...)
			break // one process tells for its unit
		}
	}
	if rows == nil {
		return pass(fmt.Sprintf("%d service(s) hold all %d slot groups", len(running), len(want)))
	}
	return rows
}

// checkLiveRelease finds a service that still runs an earlier release.
func checkLiveRelease(ctx context.Context, a *audit, _ subject) []report.Row {
	live, err := filepath.EvalSymlinks(a.layout.Current())
	if err != nil {
		return fail(fmt.Sprintf("current names no release: %v", cause(err)), a.deployFix())
	}
	running, idle, err := a.services(ctx)
	if err != nil {
		return unknown(err.Error())
	}
	if len(running) == 0 {
		return skip("no service runs: " + strings.Join(idle, ", "))
	}
	var old []string
	for _, s := range running {
		exe, err := a.exe(s.PID)
		if err != nil {
			return unknown(fmt.Sprintf("%s (pid %d): which file it runs cannot be read: %v", s.Unit, s.PID, cause(err)))
		}
		if !within(exe, live) || strings.HasSuffix(exe, " (deleted)") {
			old = append(old, s.Unit)
		}
	}
	if len(old) > 0 {
		return fail(fmt.Sprintf("%s: not of the release that current names, %s", strings.Join(old, ", "), filepath.Base(live)), a.restartFix(old...))
	}
	text := fmt.Sprintf("%d service(s) run %s", len(running), filepath.Base(live))
	if len(idle) > 0 {
		text += "; not running: " + strings.Join(idle, ", ")
	}
	return pass(text)
}
