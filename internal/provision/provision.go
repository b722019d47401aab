// Package provision makes a machine a slot host: accounts and groups, folders,
// the runtime's programs and their configuration, the slot table, the sudo rule,
// the AppArmor exception and the service's linger; see docs/formats.md. It runs
// as root on the host.
//
// A run is a list of small steps. Each looks, says what differs, makes it so and
// looks again; a plan is the same run without the third part, so it cannot
// promise anything else. Every step runs every time: a run that was killed
// anywhere is finished by the next one (case P-05), and one with nothing to do
// touches nothing.
//
// It may import accounts, hosts, report, safefs, units, and of the sandbox what
// reads the files it writes; it must never be imported by what runs as a slot.
package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// Request is one run for one host file.
type Request struct {
	Host hosts.Host
	Plan bool // say what would change, change nothing
	// Slotctl and Half are what is installed into LIBEXEC.
	Slotctl, Half Program
	Log           io.Writer // one line a step, for the person
}

// run is the state that steps share.
type run struct {
	Request
	sys    System
	l      hosts.Layout
	real   hosts.Layout       // App and Docs with root's own links resolved
	db     *accounts.Database // the first look, until it is used
	roster *roster
	sudo   sudoKind
	rows   []report.Row
	wrong  []string // what was left alone and refuses the run at its end
}

// Run provisions the host and answers with a row for each step and difference.
// The caller holds the product's root lock, unless it only plans. An error
// carries its exit code; the rows before it are true.
func Run(ctx context.Context, sys System, req Request) ([]report.Row, error) {
	r := &run{Request: req, sys: sys, l: req.Host.Layout()}
	// What forbids the whole of it is found before anything is changed.
	for _, check := range []func(context.Context) error{r.platform, r.holders, r.askSudo} {
		if err := check(ctx); err != nil {
			return nil, err
		}
	}
	for _, s := range r.steps() {
		if err := r.do(ctx, s); err != nil {
			return r.rows, err
		}
	}
	if req.Host.Slots.Mode == "off" {
		r.rows = append(r.rows, report.Row{State: report.Info, Check: "slots", Detail: "slots.mode is off in the host file: every command still runs as the service account"})
	}
	for _, look := range []func() error{r.audit, r.slotManagers} {
		if err := look(); err != nil {
			return r.rows, err
		}
	}
	if err := r.proveSudo(ctx); err != nil {
		return r.rows, err
	}
	if len(r.wrong) > 0 {
		return r.rows, report.Coded(report.ExitState, "%s", strings.Join(r.wrong, "; "))
	}
	return r.rows, nil
}

// refuse makes the run end with a refusal; a step that looks twice says it once.
func (r *run) refuse(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.wrong, text) {
		r.wrong = append(r.wrong, text)
	}
}

// steps are in the order in which they need each other: nobody can use sudo
// before everything behind it stands, and the service's manager starts last, so
// that it has the groups.
func (r *run) steps() []step {
	return []step{
		{name: "accounts", look: r.accounts, hold: r.accountsLock, touches: []string{"/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow", "/etc"}},
		{name: "ancestors", look: r.ancestors},
		{name: "app-folders", look: r.appFolders},
		{name: "slot-folders", look: r.slotFolders},
		{name: "docs", look: r.docs},
		{name: "shared-folders", look: r.sharedFolders},
		{name: "programs", look: r.programs},
		{name: "slotctl-config", look: r.slotctlConfig},
		{name: "slot-table", look: r.slotTable},
		{name: "sudo-rule", look: r.sudoRule},
		{name: "apparmor", look: r.apparmor},
		{name: "linger", look: r.linger},
	}
}

// step is one part of the host. Look finds what differs; it changes nothing.
type step struct {
	name string
	look func(ctx context.Context) (findings, error)
	// hold takes a lock for the whole step, but not for a plan.
	hold func(ctx context.Context) (*safefs.Lock, error)
	// touches are files that programs of the host write for the step.
	touches []string
}

// findings are the differences that one look found, and what ends them all.
type findings struct {
	list  []difference
	apply func(ctx context.Context) error
	notes []report.Row // WARN and INFO lines that are no work
	right string       // what the OK row says when nothing differs
}

// difference is one thing that is not as asked. What has "<slot>" in the place
// of the slot's name, so that fifty equal ones become one line.
type difference struct{ slot, what string }

func (f *findings) add(slot, format string, args ...any) {
	f.list = append(f.list, difference{slot, fmt.Sprintf(format, args...)})
}

func (r *run) do(ctx context.Context, s step) (failed error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.hold != nil && !r.Plan {
		lock, err := s.hold(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		defer func() { failed = errors.Join(failed, lock.Release()) }()
	}
	found, err := s.look(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	state := report.Planned
	if len(found.list) > 0 && !r.Plan {
		fmt.Fprintf(r.Log, "%s: %d to change\n", s.name, len(found.list))
		if err := found.apply(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, r.frozen(err, s.touches...))
		}
		after, err := s.look(ctx)
		if err != nil {
			return fmt.Errorf("%s: read back: %w", s.name, err)
		}
		if len(after.list) > 0 {
			d := after.list[0]
			return report.Coded(report.ExitUnfinished, "%s: done, but read back %d differences, the first: %s", s.name, len(after.list), strings.ReplaceAll(d.what, "<slot>", d.slot))
		}
		state = report.Changed
	}
	if len(found.list) == 0 {
		right := cmp.Or(found.right, "as asked")
		r.rows = append(r.rows, report.Row{State: report.OK, Check: s.name, Detail: right})
	}
	r.rows = append(r.rows, rowsOf(state, s.name, found.list)...)
	r.rows = append(r.rows, found.notes...)
	return nil
}

// frozen is err, with the way out where a file that not even root may change is
// why: one that the error names, or one of touched.
func (r *run) frozen(err error, touched ...string) error {
	var bad *fs.PathError
	if errors.As(err, &bad) && errors.Is(err, fs.ErrPermission) {
		p := strings.TrimPrefix(bad.Path, r.sys.Root)
		touched = []string{p, path.Dir(p)}
	}
	for _, p := range touched {
		if r.isFrozen(p) {
			return report.Coded(report.ExitState, "%w; %s is immutable or append-only; next, on the host: chattr -i -a %s, and the same again", err, p, report.Quote(p))
		}
	}
	return err
}

func (r *run) isFrozen(p string) bool {
	dir, name, err := safefs.OpenParent(r.sys.at(p))
	if err != nil {
		return false
	}
	defer dir.Close()
	n, err := dir.Open(name)
	if err != nil {
		return false
	}
	defer n.Close()
	frozen, err := n.Frozen()
	return err == nil && frozen
}

// rowsOf puts equal differences of many slots into one row.
func rowsOf(state report.State, check string, list []difference) []report.Row {
	slots := map[string][]string{}
	var order []string
	for _, d := range list {
		if _, seen := slots[d.what]; !seen {
			order = append(order, d.what)
		}
		slots[d.what] = append(slots[d.what], d.slot)
	}
	var rows []report.Row
	for _, what := range order {
		s := slots[what]
		row := report.Row{State: state, Check: check, Slot: s[0], Detail: what}
		switch last := s[len(s)-1]; {
		case len(s) == 1:
			row.Detail = strings.ReplaceAll(what, "<slot>", s[0])
		case numberOf(last)-numberOf(s[0]) == len(s)-1:
			row.Slot = s[0] + "-" + last
			row.Detail = fmt.Sprintf("%s (%d slots)", what, len(s))
		default:
			row.Detail = fmt.Sprintf("%s (%s)", what, few(s))
		}
		rows = append(rows, row)
	}
	return rows
}

// numberOf is a slot's number, with the digits that its prefix may end in: only
// differences count.
func numberOf(slot string) int {
	n, _ := strconv.Atoi(strings.TrimLeft(slot, "abcdefghijklmnopqrstuvwxyz"))
	return n
}

// few words a list that may be long.
func few(list []string) string {
	const most = 5
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// holder is what a lock file says of this run.
func (r *run) holder() safefs.Holder {
	return safefs.Holder{PID: os.Getpid(), Verb: "provision", Since: r.sys.Now()}
}
