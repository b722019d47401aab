package slottable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/platform"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// alike collects what is wrong with several slots in the same way: it is told
// once.
type alike struct {
	texts []string
	slots map[string][]string
}

func (a *alike) add(slot, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if a.slots[text] == nil {
		a.texts = append(a.texts, text)
	}
	if a.slots == nil {
		a.slots = map[string][]string{}
	}
	a.slots[text] = append(a.slots[text], slot)
}

// tell makes a FAIL of each, which provisioning mends.
func (r *run) tell(check string, a alike) {
	for _, text := range a.texts {
		if slots := a.slots[text]; len(slots) == 1 {
			r.fail(check, slots[0], r.provision(), "%s", text)
		} else {
			r.fail(check, "", r.provision(), "%s: %s", few(slots), text)
		}
	}
}

// showLogins tells what the accounts of slots have beside what provisioning gives
// them, and who is in their groups.
func (r *run) showLogins(names []string) {
	var wrong alike
	unlocked := r.unlocked()
	for _, slot := range names {
		u, ok := r.db.User(slot)
		if _, own := r.own(slot); !ok || !own {
			continue
		}
		for _, g := range r.db.BeyondGroups(slot, slot, r.SharedGroup()) {
			wrong.add(slot, "in the group %s, and no slot should be", g.Name)
		}
		if u.Shell != accounts.SlotShell {
			wrong.add(slot, "the login shell is %s and not %s", u.Shell, accounts.SlotShell)
		}
		if unlocked[slot] {
			wrong.add(slot, "a password opens the account")
		}
		for _, guest := range r.db.Guests(slot, slot, r.Product) {
			if !slices.Contains(names, guest) {
				r.row(report.Warn, "slot-account", slot, "%s is in the group %s, so what is open to that slot is open to %s; provision says how to change that", guest, slot, guest)
			}
		}
	}
	r.tell("slot-account", wrong)
}

// unlocked: see accounts.Unlocked. Files that cannot be read tell nothing.
func (r *run) unlocked() map[string]bool {
	passwd, _ := os.ReadFile(r.at("/etc/passwd"))
	shadow, _ := os.ReadFile(r.at("/etc/shadow"))
	return accounts.Unlocked(passwd, shadow)
}

// slotFolder is one of a slot's three folders as it is to be.
type slotFolder struct {
	name, path string
	attr       safefs.Attr
}

func (r *run) slotFolders(slot string, own ids) []slotFolder {
	return []slotFolder{
		{"home", r.SlotHome(slot), safefs.Exact(own.uid, own.gid, 0o700)},
		{"state", r.SlotState(slot), safefs.Exact(r.service.uid, own.gid, treeMode)},
		{"run", r.SlotRun(slot), safefs.Exact(r.service.uid, own.gid, treeMode)},
	}
}

// showFolders tells which folders of slots let in whom they should not, or are
// not there.
func (r *run) showFolders(names []string) error {
	var wrong alike
	for _, slot := range names {
		own, ok := r.own(slot)
		if !ok || !r.has(slot) {
			continue
		}
		for _, f := range r.slotFolders(slot, own) {
			what, kind, err := r.folder(f)
			switch {
			case err != nil:
				return err
			case kind != "":
				r.fail("slot-folders", slot, report.Fix{Where: report.OnHost, Note: "look at it, then rm " + report.Quote(f.path) + ", then agentworks-deploy provision " + r.Host},
					"%s is a %s and not a folder", f.path, kind)
			case what != "":
				wrong.add(slot, "%s", what)
			}
		}
	}
	r.tell("slot-folders", wrong)
	return nil
}

// folder says what is wrong with f; kind is that of what stands in its place.
func (r *run) folder(f slotFolder) (what, kind string, err error) {
	dir, name, err := safefs.OpenParent(r.at(f.path))
	if errors.Is(err, fs.ErrNotExist) {
		return f.name + " is missing", "", nil
	}
	if err != nil {
		return "", "", r.blocked(err)
	}
	defer dir.Close()
	n, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return f.name + " is missing", "", nil
	}
	if err != nil {
		return "", "", err
	}
	defer n.Close()
	st, err := n.Stat()
	if err != nil {
		return "", "", err
	}
	if !st.IsDir() {
		return "", st.Kind(), nil
	}
	var parts []string
	if st.UID != f.attr.UID {
		parts = append(parts, "owner "+r.userName(st.UID))
	}
	if st.GID != f.attr.GID {
		parts = append(parts, "group "+r.groupName(st.GID))
	}
	if st.Perm() != f.attr.Set {
		parts = append(parts, fmt.Sprintf("mode %04o, not %04o", st.Perm(), f.attr.Set))
	}
	for _, kind := range lists(st) {
		acl, err := n.ACL(kind)
		if err != nil {
			return "", "", err
		}
		if acl != nil {
			parts = append(parts, "an ACL")
			break
		}
	}
	if parts == nil {
		return "", "", nil
	}
	return f.name + ": " + strings.Join(parts, ", "), "", nil
}

// missingFolders names the first folder of slot that is not there.
func (r *run) missingFolders(slot string) error {
	for _, p := range []string{r.SlotHome(slot), r.SlotState(slot), r.SlotRun(slot)} {
		if _, err := os.Lstat(r.at(p)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("there is no %s", p)
		}
	}
	return nil
}

// maxUsers bounds users.json.
const maxUsers = 16 << 20

// enabled are the ids of the platform's enabled accounts. The file is the
// service's, so no link of anybody but root is followed to it.
func (r *run) enabled() ([]string, error) {
	dir, name, err := safefs.OpenParent(r.at(r.UsersFile()))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	data, err := dir.ReadFile(name, maxUsers)
	if err != nil {
		return nil, err
	}
	return platform.ParseUsers(data)
}

// showUsers names the enabled accounts that hold no slot.
func (r *run) showUsers() (without []string) {
	ids, err := r.enabled()
	if errors.Is(err, fs.ErrNotExist) || r.Off {
		return nil
	}
	if err != nil {
		r.row(report.Warn, "accounts-without-slot", "", "not known: %s: %v", r.UsersFile(), err)
		return nil
	}
	for _, id := range ids {
		if r.table.Slot(id) == "" {
			without = append(without, id)
		}
	}
	if without != nil {
		r.row(report.Info, "accounts-without-slot", "", "%s enabled and without a slot: %s; to give one: agentworks-deploy slots assign %s <user>",
			count(len(without), "account is", "accounts are"), strings.Join(without, ", "), r.Host)
	}
	return without
}

// unknownUser warns where users.json can be read and does not name the user: the
// id may be mistyped. It is no refusal, since the platform may make the account
// later.
func (r *run) unknownUser() {
	if ids, err := r.enabled(); err == nil && !slices.Contains(ids, r.User) {
		r.rows = append(r.rows, report.Row{State: report.Warn, Check: "user-account",
			Detail: r.User + " is no enabled account of " + r.UsersFile() + ": is the id right?",
			Fix:    &report.Fix{Where: report.Operator, Argv: []string{"agentworks-deploy", "slots", "release", r.Host, r.User}}})
	}
}
