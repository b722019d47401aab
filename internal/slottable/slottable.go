// Package slottable changes who holds which slot: the table slots.json, the
// users' trees, and the note of who held a slot last. It runs as root on the
// host.
//
// A kill at any moment leaves a state that the same verb completes, and in
// between nobody reaches what is not theirs:
//
//   - Assigning writes the table first and opens the user's tree last: what is
//     in between is a holder whose commands cannot enter their own tree.
//   - Releasing closes the tree first, notes the holder, and frees the slot in
//     the table last: a slot is free only when no tree is open to it and it is
//     known who left it as it is.
//
// It may import accounts, hosts, platform, report, safefs and the sandbox's slots,
// whose reader says what a valid table is; what runs as a slot must never import it.
package slottable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/sandbox/slots"
)

// lockWait is how long a verb waits for the table's lock.
const lockWait = 10 * time.Second

// System is the machine the table is on, so that tests can put a scratch root
// and accounts of their own in its place.
type System struct {
	Root   string // before every path; empty on a host
	Proc   string // where proc(5) is mounted
	Getent accounts.Getent
	Now    func() time.Time
}

// ThisHost is the machine this process runs on.
func ThisHost() System {
	return System{Proc: "/proc", Getent: accounts.HostGetent, Now: time.Now}
}

// Request says what to do to whose slot.
type Request struct {
	Host string // its name, for the commands that messages name
	hosts.Layout
	User  string
	Slot  string // assign: the wanted one; empty: the lowest free one
	Adopt bool   // assign: take the slot with what somebody else left in it
	Off   bool   // slots are off: nobody needs one
	Plan  bool   // say what would change, change nothing
}

// On is a request to host that says nothing of users yet.
func On(host *hosts.Host) Request {
	return Request{Host: host.Name, Layout: host.Layout(), Off: host.Slots.Mode == "off"}
}

// Check refuses words that are wrong whatever the state of the host (exit 2).
func (r Request) Check() error {
	if !slots.ValidUserID(r.User) {
		return report.Coded(report.ExitUsage, "%q is not a user id: letters, digits, '_', '.' and '-', at most 128, not beginning with '.' or '-', and not the name of a shared folder", r.User)
	}
	if r.Slot != "" && !r.has(r.Slot) {
		return report.Coded(report.ExitUsage, "%q is no slot of this host: they are %s to %s", r.Slot, r.Layout.Slot(1), r.Layout.Slot(r.Count))
	}
	return nil
}

// names are the slots of the host.
func (r Request) names() []string {
	names := make([]string, r.Count)
	for i := range names {
		names[i] = r.Layout.Slot(i + 1)
	}
	return names
}

// run is one verb at work. Descriptors and the lock live as long as it.
type run struct {
	Request
	sys     System
	etc     *safefs.Dir
	users   *safefs.Dir // <docs>/_users
	lock    *safefs.Lock
	db      *accounts.Database
	service ids
	table   *table
	history *history
	rows    []report.Row
}

type ids struct{ uid, gid int }

// begin opens what the verb works on; the caller ends it with close, error or
// not. Only a run that changes something takes the lock and removes leftovers.
func begin(ctx context.Context, sys System, req Request, verb string) (*run, error) {
	r := &run{Request: req, sys: sys}
	err := r.open(ctx, verb)
	if err == nil {
		err = r.load()
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = r.notProvisioned(err)
	}
	return r, err
}

// load reads the table and the note beside it.
func (r *run) load() (err error) {
	if r.table, err = readTable(r.etc, r.tableName(), r.Prefix, r.Host); err != nil {
		return err
	}
	r.history, err = readHistory(r.etc, r.historyName())
	return err
}

func (r *run) open(ctx context.Context, verb string) (err error) {
	if r.db, err = accounts.Load(ctx, r.sys.Getent, append(r.names(), r.Product, r.SharedGroup())...); err != nil {
		return err
	}
	var ok bool
	if r.service, ok = r.account(r.Product); !ok {
		return r.notProvisioned(fmt.Errorf("there is no account %s", r.Product))
	}
	if r.etc, err = safefs.OpenDir(r.at(r.Etc())); err != nil {
		return err
	}
	if !r.Plan {
		holder := safefs.Holder{PID: os.Getpid(), Verb: verb, Since: r.sys.Now()}
		r.lock, err = safefs.Acquire(ctx, r.at(r.SlotTableLock()), holder, lockWait)
		var held *safefs.LockedError
		if errors.As(err, &held) {
			return report.Coded(report.ExitLocked, "the slot table is in use: %w", err)
		}
		if st, look := r.etc.Lstat(path.Base(r.SlotTableLock())); err != nil && look == nil && !st.IsRegular() {
			return r.inTheWay(err)
		}
		if err != nil {
			return err
		}
	}
	docs, err := safefs.OpenDir(r.at(r.Docs))
	if err != nil {
		return err
	}
	defer docs.Close()
	if r.users, err = docs.Dir("_users"); err != nil {
		return r.blocked(err)
	}
	for _, name := range []string{r.tableName(), r.historyName()} {
		if r.Plan {
			break
		}
		if err := r.etc.DropStale(name); err != nil {
			return report.Coded(report.ExitState, "%w", err)
		}
	}
	return nil
}

func (r *run) close() error {
	for _, d := range []*safefs.Dir{r.etc, r.users} {
		if d != nil {
			d.Close()
		}
	}
	if r.lock == nil {
		return nil
	}
	return r.lock.Release()
}

func (r *run) at(path string) string { return r.sys.Root + path }

// account returns the ids of one account.
func (r *run) account(name string) (ids, bool) {
	u, ok := r.db.User(name)
	return ids{int(u.UID), int(u.GID)}, ok
}

// identity refuses an account that only has a slot's name: whoever gets it would
// be given a stranger's account, and the stranger the user's tree.
func (r *run) identity(slot string) error {
	err := r.db.CheckSlot(slot, r.SlotHome(slot))
	switch {
	case errors.Is(err, accounts.ErrMissing):
		return r.notProvisioned(err)
	case err != nil:
		return report.Coded(report.ExitState, "%s is not given to anybody: %w; next, on the host, where nobody needs that account: userdel %s; then agentworks-deploy provision %s", slot, err, slot, r.Host)
	}
	return nil
}

// own are the ids of a slot whose account is the slot's and nobody else's. It may
// be one above the count.
func (r *run) own(slot string) (ids, bool) {
	if err := r.db.CheckSlot(slot, r.SlotHome(slot)); err != nil && !errors.Is(err, accounts.ErrMissing) {
		return ids{}, false
	}
	return r.account(slot)
}

// former are the slots above the count that have an account: provisioning leaves
// them where it lowers the count.
func (r *run) former() []string {
	var names []string
	for _, u := range r.db.Users() {
		if slots.ValidSlot(r.Prefix, u.Name) && u.Home == r.SlotHome(u.Name) && !r.has(u.Name) {
			names = append(names, u.Name)
		}
	}
	slices.SortFunc(names, slots.CompareSlots)
	return names
}

// has says whether slot is one of the host's.
func (r Request) has(slot string) bool { return slices.Contains(r.names(), slot) }

// isSlot says whether an id is a slot's.
func (r *run) isSlot(uid int) bool {
	return slices.ContainsFunc(slices.Concat(r.names(), r.former()), func(slot string) bool {
		own, ok := r.account(slot)
		return ok && own.uid == uid
	})
}

// maxCount is the highest slots.count.
const maxCount = 998

// aboveCount is what is wrong about a slot that is held and not among names.
func (r *run) aboveCount(slot string) string {
	wrong := fmt.Sprintf("slots.count of the host file is %d", r.Count)
	if n, err := strconv.Atoi(strings.TrimPrefix(slot, r.Prefix)); err == nil && 0 < n && n <= maxCount && r.Layout.Slot(n) == slot {
		wrong += fmt.Sprintf(" (raise slots.count to %d and provision, to keep it)", n)
	}
	return wrong
}

// blocked is err, with the next step where something else stands in the place of
// a folder of the host's.
func (r *run) blocked(err error) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return r.inTheWay(err)
	}
	return err
}

func (r *run) inTheWay(err error) error {
	return report.Coded(report.ExitState, "%w; next: agentworks-deploy provision %s, which says what to do about it", err, r.Host)
}

func (r *run) notProvisioned(err error) error {
	return report.Coded(report.ExitState, "the host is not provisioned for slots: %w; next: agentworks-deploy provision %s", err, r.Host)
}

// did notes a change that was made, or that would be.
func (r *run) did(check, slot, format string, args ...any) {
	state := report.Changed
	if r.Plan {
		state = report.Planned
	}
	r.row(state, check, slot, format, args...)
}

func (r *run) row(state report.State, check, slot, format string, args ...any) {
	r.rows = append(r.rows, report.Row{State: state, Check: check, Slot: slot, Detail: fmt.Sprintf(format, args...)})
}

// count words a number of things: "1 process", "3 processes".
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
