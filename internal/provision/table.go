package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/sandbox/slots"
)

// slotTable makes ETC, an empty table where there is none, and the table's lock.
// A table that exists keeps its content, whatever it is (case P-05); its owner,
// group and mode are put right.
func (r *run) slotTable(context.Context) (findings, error) {
	group := r.serviceGroup()
	dirs, err := r.etc()
	if err != nil {
		return findings{}, err
	}
	anything := func(io.Reader) (bool, error) { return true, nil }
	content := func(text string) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewBufferString(text)), nil }
	}
	list := []file{{r.l.SlotTableLock(), rootOwner(), rootOwner(), 0o600, anything, content("")}}
	table := file{r.l.SlotTable(), rootOwner(), group, 0o640, anything, content("{\"slots\":{}}\n")}
	note, make, err := r.lookAtTable()
	if err != nil {
		return findings{}, err
	}
	if make {
		list = append(list, table)
	}
	// The note of who held a slot is the slot verbs' to make.
	switch _, err := r.lstat(r.l.SlotHistory()); {
	case err == nil:
		list = append(list, file{r.l.SlotHistory(), rootOwner(), rootOwner(), 0o600, anything, content("{}\n")})
	case !errors.Is(err, fs.ErrNotExist):
		return findings{}, err
	}
	f, err := r.files(dirs, list)
	f.notes = append(f.notes, note...)
	return f, err
}

// lookAtTable warns of a table that no program can read, and leaves one that is
// gone to slots rebuild where users' trees say who held what: an empty one would
// make that look right.
func (r *run) lookAtTable() (notes []report.Row, make bool, err error) {
	data, err := r.sys.read(r.l.SlotTable(), fileLimit)
	if errors.Is(err, safefs.ErrNotRegular) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil, true, nil // the step refuses it
	}
	if err != nil {
		return nil, false, err
	}
	rebuild := []string{"agentworks-deploy", "slots", "rebuild", r.Host.Name}
	if data != nil {
		if _, err := slots.ParseTable(data, r.l.Prefix); err != nil {
			notes = append(notes, report.Row{State: report.Warn, Check: "slot-table",
				Detail: fmt.Sprintf("%s is left as it is, and no program can read it: %v", r.l.SlotTable(), err), Fix: &report.Fix{Where: report.Operator, Argv: rebuild}})
		}
		return notes, true, nil
	}
	held, err := r.treesOfSlots()
	if held > 0 {
		r.refuse("%s is gone, and %d users' trees have the group of a slot; it is not begun anew; next: %s, which goes by them; then provision again", r.l.SlotTable(), held, strings.Join(rebuild, " "))
	}
	return nil, held == 0, err
}

// treesOfSlots counts the users' trees that are some slot's.
func (r *run) treesOfSlots() (held int, err error) {
	users, err := safefs.OpenDir(r.sys.at(r.l.Users()))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer users.Close()
	names, err := users.Names()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		st, err := users.Lstat(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		if err == nil && st.IsDir() && slots.ValidUserID(name) && slices.ContainsFunc(r.roster.slots, func(m member) bool { return int(m.gid) == st.GID }) {
			held++
		}
	}
	return held, nil
}

// holders refuses a table in which somebody holds what is no slot of the host:
// the sudo rule would leave it out, and the holder be locked out unseen. A table
// that cannot be read is another step's business.
func (r *run) holders(context.Context) error {
	data, err := r.sys.read(r.l.SlotTable(), fileLimit)
	if err != nil || data == nil {
		return nil
	}
	table, err := slots.ParseTable(data, r.l.Prefix)
	if err != nil {
		return nil
	}
	own := map[string]bool{}
	for n := 1; n <= r.l.Count; n++ {
		own[r.l.Slot(n)] = true
	}
	var cut []string
	need := 0
	for _, slot := range table.Slots() {
		if own[slot] {
			continue
		}
		cut = append(cut, slot)
		n, err := strconv.Atoi(strings.TrimPrefix(slot, r.l.Prefix))
		if err != nil || n == 0 || r.l.Slot(n) != slot { // slot00, slot007: no count has it
			n = maxSlots + 1
		}
		need = max(need, n)
	}
	if cut == nil {
		return nil
	}
	next := fmt.Sprintf("agentworks-deploy slots release %s <user> for each (agentworks-deploy slots status %s says who they are)", r.Host.Name, r.Host.Name)
	if need <= maxSlots {
		next += fmt.Sprintf(", or raise slots.count to %d in the host file", need)
	}
	return report.Coded(report.ExitState, "slots.count %d would lock out who holds %s; nothing was changed; next: %s", r.l.Count, strings.Join(cut, ", "), next)
}

// etc is ETC. All products share the parent: it belongs to the group of the one
// whose slots have the default prefix, to root while there is none, and stays
// searchable for the others whoever is provisioned last.
func (r *run) etc() ([]folder, error) {
	if r.l.Etc() == etcParent {
		return []folder{{etcParent, "", rootOwner(), r.serviceGroup(), 0o751}}, nil
	}
	group := rootOwner()
	if dir, err := safefs.OpenDir(r.sys.at(etcParent)); err == nil {
		defer dir.Close()
		if st, err := dir.Lstat("slots.json"); err == nil {
			group = owner{"the group of the product with the default prefix", st.GID}
		}
	}
	return []folder{
		{etcParent, "", rootOwner(), group, 0o751},
		{r.l.Etc(), "", rootOwner(), r.serviceGroup(), 0o750},
	}, nil
}

const etcParent = "/etc/agentworks"
