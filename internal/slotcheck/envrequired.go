package slotcheck

import (
	"context"
	"fmt"
	"strings"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/units"
)

// checkEnvRequired holds the keys that the host file wants in .env against the
// file and against what each running service was started with (case V-03). It
// compares values and tells keys alone. A host file that wants none has no row.
func checkEnvRequired(ctx context.Context, a *audit, _ subject) []report.Row {
	required := a.ask.Host.Env.Required
	if len(required) == 0 {
		return nil
	}
	name := a.layout.EnvFile()
	file, err := units.ReadEnvFile(name)
	if err != nil {
		return unknown(fmt.Sprintf("%s cannot be read: %v", name, cause(err)))
	}
	if faults := units.RequiredFaults(file, required); len(faults) > 0 {
		return fail(fmt.Sprintf("%s: %s", name, strings.Join(faults, ", ")), noFix(report.OnHost, "put each of them exactly once into "+name))
	}
	running, idle, err := a.services(ctx)
	if err != nil {
		return unknown(err.Error())
	}
	var rows []report.Row
	for _, s := range running {
		told, err := units.ReadEnviron(a.sys.Proc, s.PID)
		if err != nil {
			rows = append(rows, unknown(fmt.Sprintf("the environment of %s (pid %d) cannot be read: %v", s.Unit, s.PID, err))...)
			continue
		}
		if stale := units.Stale(file, told, required); len(stale) > 0 {
			rows = append(rows, fail(fmt.Sprintf("%s (pid %d) was started with another %s than %s has", s.Unit, s.PID, strings.Join(stale, ", "), name), a.restartFix(s.Unit))...)
		}
	}
	if rows != nil {
		return rows
	}
	text := fmt.Sprintf("%d key(s) stand once in %s, and %d service(s) hold them", len(required), name, len(running))
	if len(idle) > 0 {
		text += "; not running: " + strings.Join(idle, ", ")
	}
	return pass(text)
}
