package slotcheck

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/slots"
)

// checkSlotHygiene counts what the slots that hold nobody still have (case
// T-12): whoever gets such a slot next would get it too. It speaks of a slot
// only where something is left.
func checkSlotHygiene(ctx context.Context, a *audit, _ subject) []report.Row {
	processes, err := accounts.Count(a.sys.Proc)
	if err != nil {
		return unknown(err.Error())
	}
	var free []subject
	for _, u := range a.accounts.Users() {
		if slots.ValidSlot(a.layout.Prefix, u.Name) && u.Home == a.layout.SlotHome(u.Name) && a.table.User(u.Name) == "" {
			free = append(free, a.subject(u, ""))
		}
	}
	look := check{"slot-hygiene", func(ctx context.Context, a *audit, s subject) []report.Row {
		return a.leftovers(ctx, s, processes[s.Account.UID])
	}}
	if rows := a.perSlot(ctx, []check{look}, free); len(rows) > 0 {
		return rows
	}
	return pass(fmt.Sprintf("%d slot(s) that hold nobody have nothing left", len(free)))
}

// leftovers looks at one slot. Its state and run folders are open to the
// service; its home is the slot's own, so the slot counts there, through the
// chain.
func (a *audit) leftovers(ctx context.Context, s subject, processes int) []report.Row {
	var left []string
	for _, f := range []struct{ name, dir string }{{"state", a.layout.SlotState(s.Slot)}, {"run", a.layout.SlotRun(s.Slot)}} {
		entries, err := os.ReadDir(f.dir)
		if err != nil && !gone(err) {
			return unknown(fmt.Sprintf("%s cannot be listed: %v", f.dir, cause(err)))
		}
		if n := len(entries); n > 0 {
			left = append(left, fmt.Sprintf("%d in %s", n, f.name))
		}
	}
	n, rows := a.countHome(ctx, s)
	if len(rows) > 0 {
		return rows
	}
	if n > 0 {
		left = append([]string{fmt.Sprintf("%d in home", n)}, left...)
	}
	if processes > 0 {
		left = append(left, fmt.Sprintf("%d process(es)", processes))
	}
	if len(left) == 0 {
		return nil
	}
	return fail("it holds nobody, and something of its last user is left: "+strings.Join(left, ", "), a.cleanFix(s))
}

// countHome lets the slot count the entries of its home.
func (a *audit) countHome(ctx context.Context, s subject) (int, []report.Row) {
	mark := rand.Text()
	home := a.layout.SlotHome(s.Slot)
	script := `list=$(ls -A -- "$1") && set -- $(printf %s "$list" | wc -l -m) && echo ` + mark + ` $1 $2`
	o, err := a.wrapped(ctx, a.chain, shell.Command{Slot: s.Slot, Dir: a.probeDir(s), Read: []string{home},
		Argv: []string{"/bin/sh", "-c", script, "probe", home}})
	if err != nil {
		return 0, unknown(err.Error())
	}
	for line := range strings.Lines(o.Stdout) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), mark+" "); ok {
			if n, err := strconv.Atoi(rest); err == nil {
				return n, nil
			}
		}
	}
	r := a.explain(o, a.probeDir(s), s)
	return 0, []report.Row{{State: report.Fail, Detail: "its home could not be counted: " + r.Detail, Cause: r.Cause, Fix: r.Fix}}
}

// cleanFix leaves the choice to a person, since what is left is a user's.
func (a *audit) cleanFix(s subject) *report.Fix {
	return noFix(report.OnHost, fmt.Sprintf("%s slots status says who left it: give the slot back to that user, or move what is left to %s/quarantine",
		program, a.layout.SlotsRoot()))
}
