package slotcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"agentworks-deploy/internal/platform"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/slots"
)

// checkAccountsWithoutSlot counts people who share the service account (case
// V-01). It tells counts only.
func checkAccountsWithoutSlot(_ context.Context, a *audit, _ subject) []report.Row {
	file := "<docs>/config/users.json"
	ids, err := platform.EnabledUsers(a.layout.UsersFile())
	if errors.Is(err, fs.ErrNotExist) {
		return skip("there is no " + file)
	}
	if err != nil {
		return unknown(fmt.Sprintf("%s cannot be read: %v", file, cause(err)))
	}
	mode := slots.ParseMode(a.settings[keySlots])
	if mode == slots.Off {
		if len(ids) < 2 {
			return pass(fmt.Sprintf("%d enabled account(s), slots off", len(ids)))
		}
		return fail(fmt.Sprintf("%d enabled accounts share one Linux account: slots are off", len(ids)),
			noFix(report.Operator, fmt.Sprintf("set slots.mode in the host file, provision, assign slots, and set %s=on in %s", keySlots, a.layout.EnvFile())))
	}
	without := 0
	for _, id := range ids {
		if a.table.Slot(id) == "" {
			without++
		}
	}
	text := fmt.Sprintf("%d of %d enabled account(s) without a slot", without, len(ids))
	switch {
	case without == 0:
		return pass(text)
	case mode == slots.On:
		return fail(text+"; their commands are refused", noFix(report.Operator, fmt.Sprintf("%s slots assign for each of them; slots status says who they are", program)))
	}
	return warn(text + "; their commands run as the service account")
}

// slotsOff is the whole audit of a host whose service uses no slots.
func (a *audit) slotsOff(ctx context.Context) []report.Row {
	var rows []report.Row
	for _, r := range a.once(ctx, []check{{"accounts-without-slot", checkAccountsWithoutSlot}}) {
		if r.State == report.Fail || r.State == report.Error {
			rows = append(rows, r)
		}
	}
	row := report.Row{State: report.Info, Check: "slots", Detail: "slots not enabled"}
	if _, err := os.Lstat(a.tableFile); err == nil {
		row = report.Row{State: report.Warn, Check: "slots", Detail: "slots not enabled, and there is a slot table: " + a.tableFile}
	}
	return append(rows, row)
}
