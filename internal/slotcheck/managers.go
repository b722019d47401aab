package slotcheck

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"agentworks-deploy/internal/report"
)

// lingerDir holds a file for each account whose user manager starts with the
// host; see loginctl(1).
const lingerDir = "/var/lib/systemd/linger"

// checkSlotManagers warns of slots with a user manager: it runs whatever it is
// asked to as the slot, outside every sandbox, so that only the view of a
// command stands between the two. Nothing of this project needs one, but a
// docker of the slot's own does.
func checkSlotManagers(_ context.Context, a *audit, _ subject) []report.Row {
	if a.config.SlotDocker {
		return nil
	}
	var rows []report.Row
	for _, u := range a.own() {
		row := report.Row{State: report.Warn, Slot: u.Name}
		switch {
		case exists(filepath.Join(lingerDir, u.Name)):
			row.Detail = "it lingers: a user manager of the slot runs whatever it is asked to, outside every sandbox"
			row.Fix = hostFix("loginctl", "disable-linger", u.Name)
		case exists(fmt.Sprintf("/run/user/%d", u.UID)):
			row.Detail = "it is logged in, so it has a user manager, which runs whatever it is asked to, outside every sandbox"
			row.Fix = hostFix("loginctl", "terminate-user", u.Name)
		default:
			continue
		}
		rows = append(rows, row)
	}
	return rows
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}
