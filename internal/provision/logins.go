package provision

import (
	"context"
	"fmt"
	"slices"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
)

// beyond finds what a slot's account has and no slot should: further groups, a
// password, another shell. Slots above the count are accounts
// all the same.
func (s *survey) beyond(r *roster, bad *conflicts) {
	for _, m := range r.everySlot() {
		u, ok := s.db.User(m.name)
		if !ok {
			continue
		}
		for _, g := range s.db.BeyondGroups(m.name, m.name, r.shared.Name) {
			switch {
			case s.closed(g, r): // intruders refuses it
			case s.localGroup(g.Name):
				r.leaves = append(r.leaves, join{m.name, g.Name})
			default:
				bad.add("the slot %s is a member of the group %s, which is not in /etc/group: take it out where that group comes from", m.name, g.Name)
			}
		}
		if u.Shell != accounts.SlotShell {
			r.shells = append(r.shells, m.name)
		}
		if s.unlocked[m.name] {
			r.unlocked = append(r.unlocked, m.name)
		}
	}
	for _, m := range r.everySlot() {
		g, _ := s.db.Group(m.name)
		for _, who := range s.db.Guests(m.name, m.name, r.service.Name) {
			if !slices.ContainsFunc(r.everySlot(), func(m member) bool { return m.name == who }) {
				r.guests = append(r.guests, guest{join{who, m.name}, g.Has(who)})
			}
		}
	}
}

// closed says whether a group is the service's or a slot's.
func (s *survey) closed(g accounts.Group, r *roster) bool {
	return g.GID == r.service.GID || slices.ContainsFunc(r.everySlot(), func(m member) bool { return m.name == g.Name })
}

// everySlot is the slots of the host and those above its count.
func (r *roster) everySlot() []member { return slices.Concat(r.slots, r.former) }

// logins adds what beyond found.
func (r *run) logins(f *findings) {
	for _, j := range r.roster.leaves {
		f.add(j.user, "take <slot> out of the group %s", j.group)
	}
	for _, name := range r.roster.shells {
		f.add(name, "set the login shell of <slot> to %s", accounts.SlotShell)
	}
	for _, name := range r.roster.unlocked {
		f.add(name, "lock the password of <slot>")
	}
	for _, g := range r.roster.guests {
		f.notes = append(f.notes, report.Row{State: report.Warn, Check: "accounts", Slot: g.group,
			Detail: fmt.Sprintf("%s is in the group %s, so what is open to that slot is open to %s", g.user, g.group, g.user),
			Fix:    g.fix()})
	}
	var former []string
	for _, m := range r.roster.former {
		former = append(former, m.name)
	}
	if former != nil {
		f.notes = append(f.notes, report.Row{State: report.Info, Check: "accounts",
			Detail: fmt.Sprintf("above slots.count %d: %s; accounts, groups and folders stay, and no command can run as them; to remove one by hand, on the host: save what its folders in %s hold, then userdel %s; groupdel %s",
				r.l.Count, few(former), r.l.SlotsRoot(), former[0], former[0])})
	}
}

// guest is an account in the group of a slot that is not its own.
type guest struct {
	join
	listed bool // as a member; else it is the account's primary group
}

func (g guest) fix() *report.Fix {
	if g.listed {
		return &report.Fix{Where: report.OnHost, Argv: []string{"gpasswd", "-d", g.user, g.group}}
	}
	return &report.Fix{Where: report.OnHost, Note: fmt.Sprintf("give %s another primary group: usermod -g <group> %s", g.user, g.user)}
}

// closeLogins makes it so.
func (r *run) closeLogins(ctx context.Context) error {
	for _, j := range r.roster.leaves {
		if err := r.account(ctx, "gpasswd", "-d", j.user, j.group); err != nil {
			return err
		}
	}
	for _, name := range r.roster.shells {
		if err := r.account(ctx, "usermod", "-s", accounts.SlotShell, name); err != nil {
			return err
		}
	}
	for _, name := range r.roster.unlocked {
		if err := r.account(ctx, "usermod", "-L", name); err != nil {
			return err
		}
	}
	return nil
}
