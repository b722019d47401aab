package slotcheck

import (
	"context"
	"runtime"
	"sync"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
)

// Level says how much an audit asks.
type Level string

// The two levels: Basic proves that commands start, Full also that they are
// confined.
const (
	Basic Level = "basic"
	Full  Level = "full"
)

// subject is one slot that checks look at. User is the id of who holds it; it
// is empty for the test slot, and is never printed.
type subject struct {
	Slot    string
	Account accounts.User
	Groups  []uint32 // of the account, the primary one first
	User    string
}

func (s subject) test() bool { return s.User == "" }

// check is one question. Run answers with rows whose Check and Slot it may leave
// out; no row at all means that there is nothing to say. A check that could not
// find out answers ERROR, never PASS and never nothing.
type check struct {
	Name string
	Run  func(ctx context.Context, a *audit, s subject) []report.Row
}

// ask runs c for s and fills in what a row left out.
func (c check) ask(ctx context.Context, a *audit, s subject) []report.Row {
	rows := c.Run(ctx, a, s)
	for i := range rows {
		if rows[i].Check == "" {
			rows[i].Check = c.Name
		}
		if rows[i].Slot == "" {
			rows[i].Slot = s.Slot
		}
	}
	return rows
}

// once asks checks about the host, one after another.
func (a *audit) once(ctx context.Context, checks []check) []report.Row {
	var rows []report.Row
	for _, c := range checks {
		rows = append(rows, c.ask(ctx, a, subject{})...)
	}
	return rows
}

// atOnce bounds the probes of one slot that run together, well below slotctl's
// own bound, which the user's commands share.
const atOnce = 8

// perSlot asks all checks of all slots, as many at a time as there are CPUs,
// since a probe is all computing. The rows come in the order of slots and
// checks, whichever ended first.
func (a *audit) perSlot(ctx context.Context, checks []check, slots []subject) []report.Row {
	answers := make([][]report.Row, len(checks)*len(slots))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.NumCPU(), atOnce*len(slots), len(answers)) {
		workers.Go(func() {
			for i := range next {
				answers[i] = checks[i%len(checks)].ask(ctx, a, slots[i/len(checks)])
			}
		})
	}
	// One check of every slot, then the next: so the slots share the probes.
	for c := range checks {
		for s := range slots {
			next <- s*len(checks) + c
		}
	}
	close(next)
	workers.Wait()
	var rows []report.Row
	for _, r := range answers {
		rows = append(rows, r...)
	}
	return rows
}

// The rows that checks answer with.

func pass(detail string) []report.Row { return []report.Row{{State: report.Pass, Detail: detail}} }

func fail(detail string, fix *report.Fix) []report.Row {
	return []report.Row{{State: report.Fail, Detail: detail, Fix: fix}}
}

func skip(reason string) []report.Row { return []report.Row{{State: report.Skip, Detail: reason}} }

func warn(detail string) []report.Row { return []report.Row{{State: report.Warn, Detail: detail}} }

func unknown(reason string) []report.Row { return []report.Row{{State: report.Error, Detail: reason}} }
