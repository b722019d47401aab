package slotcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/shell"
	"agentworks-deploy/internal/sandbox/slots"
)

// Ask is what one audit is asked to look at.
type Ask struct {
	Host  hosts.Host
	Level Level
	// Local says that there is no host file behind Host, so that fixes which
	// need one cannot be run as they are printed.
	Local bool
	// TestSlot names the test slot; empty leaves the choice to the audit.
	TestSlot string
	// Release is the folder of the release whose launcher is probed; empty is
	// the one that current names. A deploy asks so for the one it sent.
	Release string
}

// audit holds the facts that checks share. Run fills it from top to bottom;
// checks only read it, but for silent.
type audit struct {
	sys System
	ask Ask

	settings settings
	layout   hosts.Layout // with the service's own prefix and docs root
	docs     string       // as the service was told, links not resolved
	accounts *accounts.Database
	service  accounts.User
	hide     hider

	slotctl, configFile string
	config              *slots.Config
	configFix           *report.Fix // set where the config row failed

	launcher    string // resolved
	launcherErr error

	chain shell.Chain

	silent    silence
	tableFile string
	table     *slots.Table
	slots     []subject
}

// Answer is what an audit found. Release is the id of the release whose
// launcher was probed; it is empty where there is none.
type Answer struct {
	Rows    []report.Row
	Release string
}

// Run audits the host it runs on, as the service account it runs as, and
// answers with rows in the order of docs/slotcheck.md. An error means that the
// audit could not be finished; the rows found so far come with it.
func Run(ctx context.Context, sys System, ask Ask) (Answer, error) {
	a := &audit{sys: sys, ask: ask, layout: ask.Host.Layout()}
	rows, err := a.run(ctx)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	for i := range rows {
		rows[i].Detail = a.hide.path(rows[i].Detail)
		rows[i].Cause = a.hide.path(rows[i].Cause)
	}
	answer := Answer{Rows: rows}
	if a.launcher != "" {
		answer.Release = filepath.Base(filepath.Dir(filepath.Dir(a.launcher)))
	}
	return answer, err
}

func (a *audit) run(ctx context.Context) ([]report.Row, error) {
	told, note, err := loadSettings(ctx, a.sys, &a.ask.Host)
	if err != nil {
		return []report.Row{{State: report.Error, Check: "settings", Detail: err.Error()}}, nil
	}
	var notes []report.Row
	if note != "" {
		notes = []report.Row{{State: report.Info, Check: "settings", Detail: note}}
	}
	if err := a.derive(ctx, told); err != nil {
		return notes, err
	}
	if slots.ParseMode(told[keySlots]) == slots.Off {
		return append(a.slotsOff(ctx), notes...), nil
	}
	rows := a.named("slotctl-config", a.loadConfig())
	if a.config == nil {
		return append(rows, notes...), nil
	}
	if f := rows[0]; f.State == report.Fail {
		a.configFix = f.Fix
	}
	rows = append(rows, a.once(ctx, configChecks())...)
	rows = append(rows, a.loadTable()...)
	if a.table == nil {
		return append(rows, notes...), nil
	}
	a.hide = newHider(a.users())
	a.makeChain()
	rows = append(rows, a.selectSlots()...)
	rows = append(rows, a.perSlot(ctx, slotChecks(a.ask.Level), a.slots)...)
	rows = append(rows, a.once(ctx, hostChecks(a.ask.Level))...)
	return append(rows, notes...), nil
}

// derive works out paths and accounts from the settings.
func (a *audit) derive(ctx context.Context, s settings) error {
	a.settings = s
	a.layout.Prefix = s.or(keyPrefix, a.layout.Prefix)
	a.docs = filepath.Clean(s.or(keyDocs, a.layout.Docs))
	a.layout.Docs = a.docs
	a.slotctl = filepath.Clean(s.or(keySlotctl, a.layout.Slotctl()))
	a.configFile = filepath.Join(filepath.Dir(a.slotctl), slots.ConfigName)
	a.tableFile = s.or(keyTable, a.layout.SlotTable())
	a.findLauncher()

	var names []string
	for n := 1; n <= a.layout.Count; n++ {
		names = append(names, a.layout.Slot(n))
	}
	names = append(names, a.layout.SharedGroup())
	if a.ask.TestSlot != "" {
		names = append(names, a.ask.TestSlot)
	}
	var err error
	if a.accounts, err = accounts.Load(ctx, a.sys.Getent, names...); err != nil {
		return err
	}
	service, ok := a.accounts.User(a.layout.Product)
	if !ok {
		return report.Coded(report.ExitUnfinished, "there is no account %s on this host", a.layout.Product)
	}
	a.service = service
	return nil
}

// findLauncher resolves the launcher as the service does: through current, or
// in the release that a deploy asks about.
func (a *audit) findLauncher() {
	release := a.ask.Release
	if release == "" {
		release = a.layout.Current()
	}
	file := filepath.Join(release, "bin", hosts.LauncherName)
	resolved, err := filepath.EvalSymlinks(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("there is no launcher: %s does not exist", file)
	} else if err != nil {
		// A folder that the service cannot pass says itself what is wrong; the
		// probe names it too, from the slot's side.
		err = fmt.Errorf("find the launcher %s: %w", file, cause(err))
	}
	a.launcher, a.launcherErr = resolved, err
}

// users are the ids that must never be printed: those of the table and those
// that have a folder.
func (a *audit) users() []string {
	var ids []string
	for _, slot := range a.table.Slots() {
		ids = append(ids, a.table.User(slot))
	}
	entries, _ := os.ReadDir(a.layout.Users()) // unreadable: the table's ids are all we know
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids
}

func (a *audit) named(check string, rows []report.Row) []report.Row {
	for i := range rows {
		if rows[i].Check == "" {
			rows[i].Check = check
		}
	}
	return rows
}
