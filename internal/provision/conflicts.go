package provision

import (
	"fmt"
	"slices"
	"strings"

	"agentworks-deploy/internal/report"
)

// conflicts collects everything that forbids provisioning, so that a person
// sees all of it at once and nothing has been changed (case P-03).
type conflicts []string

func (c *conflicts) add(format string, args ...any) { *c = append(*c, fmt.Sprintf(format, args...)) }

func (c conflicts) err() error {
	if len(c) == 0 {
		return nil
	}
	const most = 8
	list := []string(c)
	if len(list) > most {
		list = append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", len(c)-most))
	}
	return report.Coded(report.ExitState, "accounts in conflict, nothing was changed: %s", strings.Join(list, "; "))
}

// twins finds ids that two names share: whoever shares a slot's uid is that slot.
func (s *survey) twins(r *roster, bad *conflicts) {
	users := map[uint32]string{}
	for _, u := range s.db.Users() {
		if other, twice := users[u.UID]; twice {
			s.twin(r, bad, "uid", u.UID, other, u.Name)
		}
		users[u.UID] = u.Name
	}
	groups := map[uint32]string{}
	for _, g := range s.db.Groups() {
		if other, twice := groups[g.GID]; twice {
			s.twin(r, bad, "gid", g.GID, other, g.Name)
		}
		groups[g.GID] = g.Name
	}
	for _, m := range r.slots {
		if other, taken := users[m.uid]; m.newUser && taken {
			bad.add("%s would get uid %d, which %s has", m.name, m.uid, other)
		}
		if other, taken := groups[m.gid]; m.newGroup && taken {
			bad.add("the group %s would get gid %d, which %s has", m.name, m.gid, other)
		}
	}
	if other, taken := groups[r.shared.GID]; r.newShared && taken {
		bad.add("the group %s would get gid %d, which %s has", r.shared.Name, r.shared.GID, other)
	}
}

func (s *survey) twin(r *roster, bad *conflicts, kind string, id uint32, a, b string) {
	ours := func(name string) bool {
		return name == r.shared.Name || name == r.service.Name || slices.ContainsFunc(r.slots, func(m member) bool {
			return m.name == name && m.newUser // CheckSlot looked at the others
		})
	}
	if ours(a) || ours(b) {
		bad.add("%s and %s share %s %d", a, b, kind, id)
	}
}

// intruders finds slots in groups that would open another slot or the service
// to them; slotctl refuses such a slot.
func (s *survey) intruders(r *roster, bad *conflicts) {
	slot := map[string]bool{}
	for _, m := range r.everySlot() {
		slot[m.name] = true
	}
	for _, g := range s.db.Groups() {
		for _, name := range g.Members {
			if s.closed(g, r) && slot[name] && name != g.Name {
				bad.add("the slot %s is a member of the group %s: gpasswd -d %s %s", name, g.Name, name, g.Name)
			}
		}
	}
	for _, m := range r.slots {
		if m.gid == r.service.GID || m.gid == r.shared.GID {
			bad.add("the group of %s is gid %d, the one of the service or of all slots", m.name, m.gid)
		}
	}
}
