package slotcheck

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/shell"
)

// checkSlotHygiene counts what the slots that hold nobody still have (case
// T-12): whoever gets such a slot next would get it too. It speaks of a slot
// only where something is left.
func checkSlotHygiene(ctx context.Context, a *audit, _ subject) []report.Row {
	var free []subject
	for _, u := range a.own() {
		if a.table.User(u.Name) == "" {
			free = append(free, a.subject(u, ""))
		}
	}
	processes, err := a.lasting(ctx, free)
	if err != nil {
		return unknown(err.Error())
	}
	look := check{"slot-hygiene", func(ctx context.Context, a *audit, s subject) []report.Row {
		return a.leftovers(ctx, s, processes[s.Account.UID])
	}}
	if rows := append(a.perSlot(ctx, []check{look}, free), a.sharedFiles(ctx, free)...); len(rows) > 0 {
		return rows
	}
	return pass(fmt.Sprintf("%d slot(s) that hold nobody have nothing left", len(free)))
}

// lasting counts the processes of slots that are there to stay: what the probes
// started was told to end, and may take a moment.
func (a *audit) lasting(ctx context.Context, free []subject) (map[uint32]int, error) {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for until := time.Now().Add(3 * time.Second); ; {
		count, err := accounts.Count(a.sys.Proc)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(free, func(s subject) bool { return count[s.Account.UID] > 0 }) || time.Now().After(until) {
			return count, nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// leftovers looks at one slot. Its state and run folders are open to the
// service; its home is the slot's own, so the slot counts there, through the
// chain.
func (a *audit) leftovers(ctx context.Context, s subject, processes int) []report.Row {
	var left []string
	for _, f := range []struct{ name, dir string }{{"state", a.layout.SlotState(s.Slot)}, {"run", a.layout.SlotRun(s.Slot)}} {
		entries, err := os.ReadDir(f.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
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
	return fail("it holds nobody, and something of its last user is left: "+strings.Join(left, ", "), a.cleanFix(s, processes))
}

// countHome lets the slot count the entries of its home.
func (a *audit) countHome(ctx context.Context, s subject) (int, []report.Row) {
	mark := rand.Text()
	home := a.layout.SlotHome(s.Slot)
	// Only what was listed is counted: a refused ls must not look like an empty home.
	script := `list=$(ls -A -- "$1") && echo ` + mark + ` 0$([ -z "$list" ] || printf '%s\n' "$list" | wc -l)`
	dir := a.probeDir(s)
	o, err := a.wrapped(ctx, a.chain, shell.Command{Slot: s.Slot, Dir: dir, Read: []string{dir, home},
		Argv: []string{"/bin/sh", "-c", script, "probe", home}})
	if err != nil {
		return 0, a.unanswered("", err)
	}
	for line := range strings.Lines(o.Stdout) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), mark+" "); ok {
			if n, err := strconv.Atoi(rest); err == nil {
				return n, nil
			}
		}
	}
	r := a.explain(o, dir, s)
	if rows := a.differs(a.homeOf(s.Account)); rows != nil {
		r.Fix = rows[0].Fix
	}
	return 0, []report.Row{{State: report.Fail, Detail: "its home could not be counted: " + r.Detail, Cause: r.Cause, Fix: r.Fix}}
}

// moveAway puts what a slot has left beside the slots' folders, where only root
// gets at it; $1 is the root of the slots, $2 the slot. Nothing is lost, since it
// is a user's.
const moveAway = `umask 077; cd "$1" && q=quarantine/$2-$(date -u +%Y%m%d%H%M%S) && mkdir -p quarantine && mkdir "$q" && ` +
	`find "home/$2" "state/$2" "run/$2" -mindepth 1 -maxdepth 1 -exec mv --backup=numbered -t "$q" {} +`

// cleanFix makes a slot clean; whether its processes may end is a person's to say.
func (a *audit) cleanFix(s subject, processes int) *report.Fix {
	if processes > 0 {
		return noFix(report.OnHost, fmt.Sprintf("%s slots status says who left them: look at the processes of %s, and end them", program, s.Slot))
	}
	return hostFix("sh", "-c", moveAway, "quarantine", a.layout.SlotsRoot(), s.Slot)
}
