package admission

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/platform"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/slots"
	"agentworks-deploy/internal/units"
)

// goLive is the check of every row here.
const goLive = "go-live"

// Site is the host that a release is to go live on, as the service account sees
// it. What asks the system is a value, so that tests can stand in for it.
type Site struct {
	Host *hosts.Host
	Proc string // "/proc"
	UID  uint32 // of the service account, as which the process runs
	GID  uint32
	// Unit asks the service manager; see units.Manager.Running.
	Unit func(ctx context.Context, unit string) (units.Running, error)
	// Fence tries what a sandbox is made of; see Namespaces.
	Fence func(ctx context.Context) error
	// Provisioning says that the host is provisioned before it goes live: what
	// provisioning makes is judged after it.
	Provisioning bool

	layout hosts.Layout
	rows   []report.Row
}

// Static are the reasons in the host file alone.
func Static(h *hosts.Host) []report.Row {
	var rows []report.Row
	for _, f := range h.LiveFaults() {
		rows = append(rows, report.Row{State: report.Fail, Check: goLive, Detail: fmt.Sprintf("host file: %s %s", f.Key, f.Text),
			Fix: &report.Fix{Where: report.Operator, Note: "change hosts/" + h.Name + ".yaml; agentworks-deploy hosts validate " + h.Name}})
	}
	return rows
}

// Retired is the row of the release in dir where it holds tools that the host
// file retires (case V-07).
func Retired(ctx context.Context, h *hosts.Host, dir string) ([]report.Row, error) {
	found, err := platform.Retired(ctx, dir, h.Retired)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return []report.Row{{State: report.Fail, Check: goLive, Detail: "the release holds retired tools: " + strings.Join(found, ", "),
		Fix: &report.Fix{Where: report.Operator, Note: "build the release without them: they run model-written code outside every sandbox"}}}, nil
}

// Check answers with a FAIL for each reason why the host may not go live, all of
// them at once, and changes nothing. What cannot be found out is a reason too.
func (s *Site) Check(ctx context.Context) []report.Row {
	s.layout, s.rows = s.Host.Layout(), Static(s.Host)
	file := s.envFile()
	s.people(s.told(ctx, file))
	s.sockets(ctx)
	if !s.Provisioning {
		if err := s.Fence(ctx); err != nil {
			s.fail(report.OnHost, "a command's sandbox needs both; see docs/sandbox.md", "no user namespace with a private /tmp: %v", err)
		}
	}
	return s.rows
}

func (s *Site) fail(where, note, format string, args ...any) {
	s.rows = append(s.rows, report.Row{State: report.Fail, Check: goLive, Detail: fmt.Sprintf(format, args...), Fix: &report.Fix{Where: where, Note: note}})
}

// maxEnvFile bounds what is read of .env.
const maxEnvFile = 4 << 20

// envFile judges .env and answers with its assignments.
func (s *Site) envFile() []hosts.Assignment {
	const mend = "put each of env.required exactly once into .env, which the service account alone may read"
	name := s.layout.EnvFile()
	if open, err := openToOthers(name, s.GID); err == nil && open != "" {
		shut := []string{"chmod", "0600", name}
		if strings.Contains(open, "ACL") {
			shut = []string{"setfacl", "-b", "-m", "u::rw-,g::---,o::---", name}
		}
		s.rows = append(s.rows, report.Row{State: report.Fail, Check: goLive, Detail: fmt.Sprintf("%s is open to %s", name, open), Fix: &report.Fix{Where: report.OnHost, Argv: shut}})
	}
	data, err := readFile(name, maxEnvFile)
	if errors.Is(err, fs.ErrNotExist) {
		if len(s.Host.Env.Required) > 0 {
			s.fail(report.OnHost, mend, "%s does not exist, and env.required names %d key(s)", name, len(s.Host.Env.Required))
		}
		return nil
	}
	var found []hosts.Assignment
	if err == nil {
		found, err = hosts.ParseEnvironmentFile(data)
	}
	if err != nil {
		s.fail(report.OnHost, mend, "%s cannot be read: %v", name, reason(err))
		return nil
	}
	if faults := units.RequiredFaults(found, s.Host.Env.Required); len(faults) > 0 {
		s.fail(report.OnHost, mend, "%s: %s", name, strings.Join(faults, ", "))
	}
	return found
}

// told are the settings the workspace service will be started with: those of
// .env, which wins over its unit, and where that does not speak of slots those
// of the running service.
func (s *Site) told(ctx context.Context, file []hosts.Assignment) units.Told {
	t := units.Told{}
	for i := len(file) - 1; i >= 0; i-- { // the last one counts
		t.Assignments = append(t.Assignments, file[i])
	}
	if t.Lookup(slots.EnvMode) != "" {
		return t
	}
	running, err := units.Environment(ctx, s.Unit, s.Proc, s.layout.Product+"-workspace.service", "")
	if err != nil {
		s.fail(report.OnHost, "look at the service", "what the workspace service was told about slots is not known: %v", err)
		return t
	}
	t.Assignments = append(t.Assignments, running.Assignments...)
	return t
}

// people holds the enabled accounts against the slots (case V-01). It tells
// counts, never who they are.
func (s *Site) people(told units.Told) {
	const users = "<docs>/config/users.json"
	mode := slots.ParseMode(told.Lookup(slots.EnvMode))
	mend := fmt.Sprintf("set slots.mode in the host file, provision, assign slots, and set %s=on in %s", slots.EnvMode, s.layout.EnvFile())
	if s.Host.Tier == "team" && mode == slots.Off && s.Host.Slots.Mode != "off" {
		s.fail(report.Operator, mend, "tier team, and the service is told that slots are off")
	}
	ids, err := platform.EnabledUsers(s.layout.UsersFile())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		s.fail(report.OnHost, "make it readable and right", "%s cannot be read, so nobody knows how many accounts share one: %v", users, reason(err))
		return
	}
	if mode == slots.Off {
		if len(ids) > 1 {
			s.fail(report.Operator, mend, "%d enabled accounts share one Linux account: slots are off", len(ids))
		}
		return
	}
	if len(ids) == 0 {
		return
	}
	file := first(told.Lookup(slots.EnvTable), s.layout.SlotTable())
	prefix := first(told.Lookup(slots.EnvPrefix), s.layout.Prefix)
	table, err := slots.ReadTable(file, prefix)
	if errors.Is(err, fs.ErrNotExist) && mode == slots.OptIn {
		return // nobody has opted in
	}
	if err != nil {
		if !s.Provisioning {
			s.fail(report.OnHost, "agentworks-deploy slots status "+s.Host.Name+" says what is wrong", "the slot table cannot be read, so nobody has a slot: %s", hideUsers(err.Error(), ids))
		}
		return
	}
	without := 0
	for _, id := range ids {
		if table.Slot(id) == "" {
			without++
		}
	}
	text := fmt.Sprintf("%d of %d enabled account(s) without a slot", without, len(ids))
	switch {
	case without == 0:
	case mode == slots.On:
		s.fail(report.Operator, fmt.Sprintf("agentworks-deploy slots assign %s <user-id> for each of them; slots status says who has one", s.Host.Name), "%s, and their commands are refused: slots are on", text)
	default:
		s.rows = append(s.rows, report.Row{State: report.Warn, Check: goLive, Detail: text + "; their commands run as the service account"})
	}
}

// hideUsers keeps ids out of a text that may quote a table.
func hideUsers(text string, ids []string) string {
	for _, id := range ids {
		text = strings.ReplaceAll(text, `"`+id+`"`, userRedacted)
	}
	return text
}
