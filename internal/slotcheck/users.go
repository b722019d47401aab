package slotcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/slots"
)

// maxUsersFile bounds what is read of users.json.
const maxUsersFile = 16 << 20

// parseUsers gives the ids of the enabled accounts in a users.json. Disabled
// ones and those without an id run no commands (case V-01).
func parseUsers(data []byte) ([]string, error) {
	var doc struct {
		Users []struct {
			ID       string `json:"id"`
			Disabled bool   `json:"disabled"`
		} `json:"users"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		// The decoder's text may quote the file, so only the place is told.
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("not JSON at byte %d", syntax.Offset)
		}
		return nil, errors.New("not the expected JSON")
	}
	var ids []string
	for _, u := range doc.Users {
		if u.ID != "" && !u.Disabled {
			ids = append(ids, u.ID)
		}
	}
	return ids, nil
}

// enabledUsers reads users.json; fs.ErrNotExist where there is none.
func (a *audit) enabledUsers() ([]string, error) {
	f, err := os.Open(a.layout.UsersFile())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxUsersFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxUsersFile {
		return nil, fmt.Errorf("longer than %d bytes", maxUsersFile)
	}
	return parseUsers(data)
}

// checkAccountsWithoutSlot counts people who share the service account (case
// V-01). It tells counts only.
func checkAccountsWithoutSlot(_ context.Context, a *audit, _ subject) []report.Row {
	file := "<docs>/config/users.json"
	ids, err := a.enabledUsers()
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
