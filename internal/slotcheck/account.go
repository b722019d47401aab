package slotcheck

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/slots"
)

// above says that a slot of that name would lie above slots.count, so that it is
// none of this host: neither the sudo rule nor provision knows it. On the server
// itself there is no host file that says how many there are.
func (a *audit) above(slot string) bool {
	return !a.ask.Local && slots.CompareSlots(slot, a.layout.Slot(a.layout.Count)) > 0
}

// own are the accounts of this host's slots, whoever holds them.
func (a *audit) own() []accounts.User {
	return slices.DeleteFunc(a.accounts.Users(), func(u accounts.User) bool {
		return !slots.ValidSlot(a.layout.Prefix, u.Name) || a.above(u.Name) || a.accounts.CheckSlot(u.Name, a.layout.SlotHome(u.Name)) != nil
	})
}

// former says once that there are accounts of slots above the count.
func (a *audit) former() []report.Row {
	var names []string
	for _, u := range a.accounts.Users() {
		if slots.ValidSlot(a.layout.Prefix, u.Name) && a.above(u.Name) && u.Home == a.layout.SlotHome(u.Name) {
			names = append(names, u.Name)
		}
	}
	if names == nil {
		return nil
	}
	slices.SortFunc(names, slots.CompareSlots)
	if n := len(names); n > 3 {
		names = []string{names[0], "…", names[n-1]}
	}
	return []report.Row{{State: report.Info, Check: "slot-accounts",
		Detail: fmt.Sprintf("%s: above slots.count, which is %d, so they are no slots of this host", strings.Join(names, ", "), a.layout.Count)}}
}

// accountFaults holds a slot's account against what docs/formats.md says a slot
// has, and not against itself: whatever group it is in besides, its commands have
// too. Whether a password opens it only root can see.
func (a *audit) accountFaults(u accounts.User) []report.Row {
	var rows []report.Row
	add := func(detail string, fix *report.Fix) {
		rows = append(rows, report.Row{State: report.Fail, Check: "identity", Slot: u.Name, Detail: detail, Fix: fix})
	}
	shared := a.layout.SharedGroup()
	for _, g := range a.accounts.BeyondGroups(u.Name, u.Name, shared) {
		add(fmt.Sprintf("the account is in the group %s; a slot is in its own and %s", g.Name, shared), hostFix("gpasswd", "-d", u.Name, g.Name))
	}
	if g, ok := a.accounts.Group(shared); ok && !g.Has(u.Name) {
		add("the account is not in the group "+shared, a.provisionFix())
	}
	if g, ok := a.accounts.Group(u.Name); ok && !g.Has(a.layout.Product) {
		add(fmt.Sprintf("%s is not in the group %s, so the service cannot share files with the slot", a.layout.Product, u.Name), a.provisionFix())
	}
	if u.Shell != accounts.SlotShell {
		add(fmt.Sprintf("the login shell is %s, not %s", u.Shell, accounts.SlotShell), hostFix("usermod", "-s", accounts.SlotShell, u.Name))
	}
	return rows
}

// checkAccounts says the same of the slots that no probe runs as: whoever gets one
// next gets its groups too. Of every slot it warns who else is in its group, and so
// in its user's tree.
func checkAccounts(_ context.Context, a *audit, _ subject) []report.Row {
	var rows []report.Row
	for _, u := range a.own() {
		if !slices.ContainsFunc(a.slots, func(s subject) bool { return s.Slot == u.Name }) {
			rows = append(rows, a.accountFaults(u)...)
		}
		for _, guest := range a.accounts.Guests(u.Name, u.Name, a.layout.Product) {
			if slots.ValidSlot(a.layout.Prefix, guest) {
				continue // a fault of its own account
			}
			rows = append(rows, report.Row{State: report.Warn, Slot: u.Name, Detail: guest + " is in its group, and so reads and writes its user's files",
				Fix: hostFix("gpasswd", "-d", guest, u.Name)})
		}
	}
	return rows
}

func (a *audit) homeOf(u accounts.User) thing {
	return thing{path: a.layout.SlotHome(u.Name), uid: u.UID, gid: u.GID, mode: closedMode, folder: true}
}

// checkSlotFolders holds every slot's folders, and those of the service that are
// closed to all slots, against docs/formats.md. It speaks only of what differs. How
// slots pass through the folders above is theirs to choose: modes, or ACLs.
func checkSlotFolders(_ context.Context, a *audit, _ subject) []report.Row {
	l, service := a.layout, a.service
	var rows []report.Row
	for _, dir := range []string{l.State(), l.DocsConfig(), filepath.Join(l.SlotRuns(), ".sessions")} {
		rows = append(rows, a.differs(thing{path: dir, uid: service.UID, gid: service.GID, mode: closedMode, folder: true})...)
	}
	for _, u := range a.own() {
		for _, t := range []thing{
			a.homeOf(u),
			{path: l.SlotState(u.Name), uid: service.UID, gid: u.GID, mode: slotMode, folder: true},
			{path: l.SlotRun(u.Name), uid: service.UID, gid: u.GID, mode: slotMode, folder: true},
		} {
			for _, r := range a.differs(t) {
				r.Slot = u.Name
				rows = append(rows, r)
			}
		}
	}
	return rows
}
