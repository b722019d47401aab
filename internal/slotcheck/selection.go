package slotcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/sandbox/slots"
)

// selectSlots picks the slots to look at: every assigned one that has an
// account, and one test slot. The rows are about the choice itself.
func (a *audit) selectSlots() []report.Row {
	var rows []report.Row
	assigned := a.table.Slots()
	for _, name := range assigned {
		if a.above(name) {
			rows = append(rows, report.Row{State: report.Fail, Check: "slot-account", Slot: name,
				Detail: fmt.Sprintf("the table assigns it, and no command can run as it: slots.count of the host file is %d", a.layout.Count), Fix: a.aboveFix(name)})
			continue
		}
		acct, ok := a.accounts.User(name)
		if !ok {
			rows = append(rows, report.Row{State: report.Fail, Check: "slot-account", Slot: name,
				Detail: "the table assigns it, and there is no such account", Fix: a.provisionFix()})
			continue
		}
		if err := a.accounts.CheckSlot(name, a.layout.SlotHome(name)); err != nil {
			// A stranger's account is not tried out: its files are the stranger's.
			rows = append(rows, report.Row{State: report.Fail, Check: "slot-account", Slot: name,
				Detail: "the table assigns it, and it is not the slot's account: " + err.Error(), Fix: a.identityFix(name, err)})
			continue
		}
		a.slots = append(a.slots, a.subject(acct, a.table.User(name)))
	}
	if _, ok := a.accounts.Group(a.layout.SharedGroup()); !ok {
		rows = append(rows, report.Row{State: report.Fail, Check: "slot-accounts",
			Detail: "there is no group " + a.layout.SharedGroup() + ", through which slots share folders", Fix: a.provisionFix()})
	}
	test, err := a.testSlot()
	switch {
	case err != nil:
		rows = append(rows, report.Row{State: report.Fail, Check: "slot-accounts", Detail: err.Error(),
			Fix: noFix(report.Operator, "name a slot that holds nobody, or none")})
	case test.Name != "":
		a.slots = append(a.slots, a.subject(test, ""))
	case len(assigned) == 0:
		rows = append(rows, report.Row{State: report.Fail, Check: "slot-accounts",
			Detail: fmt.Sprintf("no slot is assigned, and no %sNN account with its home below %s could be a test slot", a.layout.Prefix, a.layout.SlotHomes()),
			Fix:    a.provisionFix()})
	}
	count := fmt.Sprintf("%d assigned slot(s); ", len(assigned))
	if test.Name != "" {
		count += "test slot " + test.Name
	} else {
		count += "no test slot"
	}
	rows = append(rows, a.former()...)
	return append([]report.Row{{State: report.Pass, Check: "slot-table-count", Detail: count}}, rows...)
}

// aboveFix is a person's choice. Only slots status may name who holds the slot.
func (a *audit) aboveFix(slot string) *report.Fix {
	host := report.Quote(a.hostName())
	return noFix(report.Operator, fmt.Sprintf("%[1]s slots release %[2]s for who holds %[3]s (%[1]s slots status %[2]s says who); or, to keep it, raise slots.count and %[1]s provision %[2]s", program, host, slot))
}

// identityFix makes what is missing; whether a stranger's account may go is a
// person's to say.
func (a *audit) identityFix(slot string, err error) *report.Fix {
	if errors.Is(err, accounts.ErrMissing) {
		return a.provisionFix()
	}
	return noFix(report.OnHost, fmt.Sprintf("look which account is the slot's: where another one has its id, take that one away; where nobody needs %s as it is, userdel it, and provision", slot))
}

func (a *audit) subject(acct accounts.User, user string) subject {
	return subject{Slot: acct.Name, Account: acct, Groups: a.accounts.GroupsOf(acct.Name), User: user}
}

// testSlot is the account whose slot runs probes on nobody's data: the one that
// was asked for, or else the highest-numbered one that fits. No name and no
// error: there is none.
func (a *audit) testSlot() (accounts.User, error) {
	if want := a.ask.TestSlot; want != "" {
		acct, ok := a.accounts.User(want)
		if !ok {
			return accounts.User{}, fmt.Errorf("%s cannot be the test slot: there is no such account", want)
		}
		if why := a.unfit(acct); why != "" {
			return accounts.User{}, fmt.Errorf("%s cannot be the test slot: %s", want, why)
		}
		return acct, nil
	}
	var best accounts.User
	for _, acct := range a.accounts.Users() {
		if a.unfit(acct) == "" && (best.Name == "" || slots.CompareSlots(acct.Name, best.Name) > 0) {
			best = acct
		}
	}
	return best, nil
}

// unfit says why acct may not be the test slot. The home is what tells our slot
// from another product's account of the same prefix (case P-03).
func (a *audit) unfit(acct accounts.User) string {
	switch {
	case !slots.ValidSlot(a.layout.Prefix, acct.Name):
		return fmt.Sprintf("not a slot of prefix %q", a.layout.Prefix)
	case a.above(acct.Name):
		return fmt.Sprintf("slots.count of the host file is %d", a.layout.Count)
	case a.table.User(acct.Name) != "":
		return "it holds somebody"
	}
	if err := a.accounts.CheckSlot(acct.Name, a.layout.SlotHome(acct.Name)); err != nil {
		return err.Error()
	}
	return ""
}

// folder is where a probe runs: its path, and how a row shows it.
type folder struct {
	Path, Show string
}

// The folders below docs that hold a user's projects.
const (
	crewProjects = "Chats/Work/projects"
	codeProjects = "Chats/Code/projects"
)

// chosen is the folder of a probe: its first real, non-hidden child by name
// below docs/rel. Why tells a person that there is none.
func (a *audit) chosen(rel, show string) (f folder, why string, err error) {
	root, err := safefs.OpenDir(resolve(a.docs))
	if err != nil {
		return folder{}, "", err
	}
	defer root.Close()
	dir, err := root.Dir(rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return folder{}, show + " does not exist", nil
	case errors.Is(err, unix.ELOOP):
		return folder{}, "there is a link on the way to " + show, nil
	case errors.Is(err, unix.ENOTDIR):
		return folder{}, show + " is not a folder", nil
	case err != nil:
		return folder{}, "", err
	}
	defer dir.Close()
	name, err := firstChild(dir)
	if err != nil {
		return folder{}, "", err
	}
	if name == "" {
		return folder{}, show + " holds no folder", nil
	}
	return folder{Path: path.Join(a.docs, rel, name), Show: path.Join(show, a.hide.words(name))}, "", nil
}

// firstChild is the first folder of dir by name, bytes compared; hidden ones,
// links, and names that no exec request can carry are passed over.
func firstChild(dir *safefs.Dir) (string, error) {
	names, err := dir.Names()
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasPrefix(name, ".") || !utf8.ValidString(name) {
			continue
		}
		st, err := dir.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if st.IsDir() {
			return name, nil
		}
	}
	return "", nil
}

// workflow is the first shared workflow; project is the first project of the
// slot's user, and for the test slot its own state folder. Nobody's probe ever
// runs in somebody else's folder (case S-09).
func (a *audit) workflow() (folder, string, error) {
	return a.chosen("Workflow", "<docs>/Workflow")
}

func (a *audit) project(s subject, rel string) (folder, string, error) {
	if s.test() {
		dir := a.layout.SlotState(s.Slot)
		return folder{Path: dir, Show: dir}, "", nil
	}
	return a.chosen(path.Join("_users", s.User, rel), "<docs>/"+hidden+"/"+rel)
}
