package slotcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/units"
)

// settled is how long a service that its manager had to start again and again
// has to run before it no longer counts as one that keeps crashing.
const settled = time.Minute

// checkServices asks the manager of each service whether it runs, and whether it
// will after the next boot. What a service answers is deploy's to judge.
func checkServices(ctx context.Context, a *audit, _ subject) []report.Row {
	names, told := a.units()
	var rows []report.Row
	for _, name := range names {
		u, err := a.sys.Unit(ctx, name)
		if err != nil {
			return unknown(fmt.Sprintf("ask for %s: %v", name, err))
		}
		if u.Unit == (units.UnitState{}) {
			row := report.Row{State: report.Warn, Detail: u.State + ", and so none of its services", Fix: hostFix("systemctl", "start", a.managerUnit())}
			return append([]report.Row{row}, a.lingering()...)
		}
		if !told && u.Unit.Load == "not-found" {
			continue // a guess of ours, and not what runs here
		}
		rows = append(rows, a.unitRows(u.Unit)...)
	}
	if rows = append(rows, a.lingering()...); rows != nil {
		return rows
	}
	return pass(fmt.Sprintf("%d service(s) run, and start with the host", len(names)))
}

// unitRows says what is wrong with one unit.
func (a *audit) unitRows(u units.UnitState) []report.Row {
	if crashes(u, now()) {
		manager := units.Manager{User: !a.systemManager(), UID: int(a.service.UID)}
		return fail(u.String(), noFix(report.OnHost, fmt.Sprintf("%s says why; then %s or, where the release is at fault, %s deploy %s with another one",
			manager.JournalCommand(u.Name, 50, time.Time{}), a.restartFix(u.Name).Command(), program, report.Quote(a.hostName()))))
	}
	var rows []report.Row
	add := func(detail string, fix *report.Fix) {
		rows = append(rows, report.Row{State: report.Warn, Detail: detail, Fix: fix})
	}
	switch {
	case u.Load == "masked":
		add(u.Name+" is masked, so nothing can start it", a.systemctl("unmask", u.Name))
	case gone(u):
		add(u.Name+" has no unit file: it does not start with the host", noFix(report.OnHost, "the unit is the platform's: put its file back, then systemctl daemon-reload of its manager"))
	case !slices.Contains([]string{"enabled", "static", "alias", "indirect", "generated"}, u.FileState):
		add(u.Name+" is not enabled ("+u.FileState+"): it does not start with the host", a.systemctl("enable", u.Name))
	}
	if u.MainPID == 0 && u.Load == "loaded" {
		add(u.String()+", so it does not run", a.systemctl("start", u.Name))
	}
	return rows
}

// crashes says that a unit failed, or that its manager starts it over and over;
// at is the monotonic time.
func crashes(u units.UnitState, at time.Duration) bool {
	again := u.Restarts > 1 && at-time.Duration(u.Started)*time.Microsecond < settled
	return u.Active == "failed" || u.Sub == "auto-restart" || u.Sub == "auto-restart-queued" || u.MainPID != 0 && again
}

func now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// gone says that the file of a unit is not there, whether its manager knows yet
// or not.
func gone(u units.UnitState) bool {
	if u.Load == "not-found" || u.File == "" {
		return true
	}
	_, err := os.Stat(u.File)
	return errors.Is(err, fs.ErrNotExist)
}

// lingering warns where nothing starts the account's manager with the host.
func (a *audit) lingering() []report.Row {
	if a.systemManager() || exists(filepath.Join(lingerDir, a.layout.Product)) {
		return nil
	}
	return []report.Row{{State: report.Warn, Detail: a.layout.Product + " does not linger: nothing starts its service manager with the host", Fix: hostFix("loginctl", "enable-linger", a.layout.Product)}}
}
