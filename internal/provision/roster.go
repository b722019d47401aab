package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

const (
	slotComment = "AgentWorks slot"
	slotShell   = "/usr/sbin/nologin"
)

// roster is one look at the accounts of a product: who there is, and who must
// be added. Ids of accounts that do not exist yet are the ones they will get.
type roster struct {
	service accounts.User
	shared  accounts.Group
	slots   []member

	newShared bool
	joins     []join   // memberships to add
	shells    []string // slots with another login shell
}

// member is one slot of the roster.
type member struct {
	name              string
	uid, gid          uint32
	newUser, newGroup bool
}

// join is a membership: user is to be in group.
type join struct{ user, group string }

// missing reports whether any account or group has to be made.
func (r *roster) missing() bool {
	return r.newShared || slices.ContainsFunc(r.slots, func(m member) bool { return m.newUser || m.newGroup })
}

// groupIDs are the groups every process of the service must hold.
func (r *roster) groupIDs() []uint32 {
	ids := []uint32{r.service.GID, r.shared.GID}
	for _, m := range r.slots {
		ids = append(ids, m.gid)
	}
	return ids
}

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

// survey is what the accounts are compared with.
type survey struct {
	layout hosts.Layout
	block  int // slots.ids of the host file, 0 when not set
	db     *accounts.Database
	taken  []idRange // login.defs, subordinate ids, systemd
	// addIDs makes the database know accounts with these ids that it does not list.
	addIDs func(ctx context.Context, ids []uint32) error
	local  func(name string) bool // the account is a line of /etc/passwd
}

// compare makes the roster, or says what stands against it. The service account
// exists.
func (s *survey) compare(ctx context.Context) (*roster, error) {
	var bad conflicts
	r := &roster{}
	r.service, _ = s.db.User(s.layout.Product)
	if r.service.UID == 0 {
		bad.add("the service account %s has uid 0", r.service.Name)
	}
	r.shared, r.newShared = s.group(s.layout.SharedGroup())
	for n := 1; n <= s.layout.Count; n++ {
		r.slots = append(r.slots, s.member(s.layout.Slot(n), &bad))
	}
	if r.missing() {
		if err := s.number(ctx, r, &bad); err != nil {
			return nil, err
		}
	}
	s.twins(r, &bad)
	s.intruders(r, &bad)
	if err := bad.err(); err != nil {
		return nil, err
	}
	s.memberships(r)
	return r, nil
}

func (s *survey) group(name string) (g accounts.Group, missing bool) {
	g, ok := s.db.Group(name)
	g.Name = name
	return g, !ok
}

// member looks at one slot. What is missing is made; an account that is there
// must be the slot's (accounts.CheckSlot).
func (s *survey) member(name string, bad *conflicts) member {
	g, noGroup := s.group(name)
	u, exists := s.db.User(name)
	m := member{name: name, uid: u.UID, gid: g.GID, newUser: !exists, newGroup: noGroup}
	err := s.db.CheckSlot(name, s.layout.SlotHome(name))
	switch {
	case !exists:
		for _, other := range g.Members {
			if other != s.layout.Product {
				bad.add("the group %s exists without its account and holds %s", name, other)
			}
		}
	case err != nil && !errors.Is(err, accounts.ErrMissing):
		bad.add("%s (%s): %v; choose another slots.prefix, or, where nobody needs it, userdel %s", name, s.source(name), err, name)
	case noGroup:
		m.gid = u.GID
	}
	return m
}

func (s *survey) source(name string) string {
	if s.local(name) {
		return "in /etc/passwd"
	}
	return "from a source of nsswitch.conf other than /etc/passwd"
}

// number gives new accounts their ids.
func (s *survey) number(ctx context.Context, r *roster, bad *conflicts) error {
	if len(r.slots) > maxSlots {
		bad.add("%d slots do not fit a block of ids: at most %d", len(r.slots), maxSlots)
		return nil
	}
	base, err := s.base(ctx, r)
	if err != nil {
		return err
	}
	if base == 0 {
		bad.add("no block of %d free ids is left in %d-%d; name one with slots.ids in the host file", blockSize, firstBlock, lastBlock+blockSize-1)
		return nil
	}
	first := ""
	if r.newShared {
		first, r.shared.GID = r.shared.Name, base
	}
	for i := range r.slots {
		m, id := &r.slots[i], base+uint32(i)+1
		fresh := m.newUser || m.newGroup
		if m.newUser {
			m.uid = id
		}
		if m.newGroup && m.gid == 0 {
			m.gid = id
		}
		if fresh && (first == "" || first == r.shared.Name) {
			first = m.name
		}
	}
	from, to := uint64(base), uint64(base)+blockSize-1
	for _, t := range s.taken {
		if t.overlaps(from, to) {
			bad.add("%s and the other new accounts would get ids in %d-%d, which overlaps %s: change that, or name a free block with slots.ids in the host file", first, from, to, t.what)
		}
	}
	for _, who := range s.strangers(base, r) {
		bad.add("%s and the other new accounts would get ids in %d-%d, but %s lies there: name a free block with slots.ids in the host file", first, from, to, who)
	}
	return nil
}

// base is the first id of the product's block: the one the host file names, the
// one its own accounts lie in already, or the first free one. 0: none is free.
func (s *survey) base(ctx context.Context, r *roster) (uint32, error) {
	if s.block != 0 {
		base := uint32(s.block)
		return base, s.addIDs(ctx, blockIDs(base))
	}
	if base, ok := ownBase(r); ok {
		return base, s.addIDs(ctx, blockIDs(base))
	}
	for base := uint32(firstBlock); base <= lastBlock; base += blockSize {
		if len(s.strangers(base, nil)) > 0 {
			continue
		}
		// A directory service may know accounts that it does not list.
		if err := s.addIDs(ctx, blockIDs(base)); err != nil {
			return 0, err
		}
		if len(s.strangers(base, nil)) == 0 {
			return base, nil
		}
	}
	return 0, nil
}

// ownBase finds the block of a run that stopped half-way, or of one with fewer slots.
func ownBase(r *roster) (uint32, bool) {
	fits := func(id, n uint32) (uint32, bool) {
		base := id - n
		return base, id >= n && base%blockSize == 0 && base >= firstBlock && base <= lastBlock
	}
	if !r.newShared {
		if base, ok := fits(r.shared.GID, 0); ok {
			return base, true
		}
	}
	for i, m := range r.slots {
		n := uint32(i) + 1
		if !m.newUser {
			if base, ok := fits(m.uid, n); ok {
				return base, true
			}
		}
		if !m.newGroup {
			if base, ok := fits(m.gid, n); ok {
				return base, true
			}
		}
	}
	return 0, false
}

func blockIDs(base uint32) []uint32 {
	ids := make([]uint32, blockSize)
	for i := range ids {
		ids[i] = base + uint32(i)
	}
	return ids
}

// strangers names the accounts and groups in a block that are not of r.
func (s *survey) strangers(base uint32, r *roster) []string {
	own := map[string]bool{}
	if r != nil {
		own[r.shared.Name] = true
		for _, m := range r.slots {
			own[m.name] = true
		}
	}
	var found []string
	in := func(id uint32) bool { return id >= base && id-base < blockSize }
	for _, u := range s.db.Users() {
		if in(u.UID) && !own[u.Name] && !s.formerSlot(u, r) {
			found = append(found, fmt.Sprintf("the account %s (uid %d)", u.Name, u.UID))
		}
	}
	for _, g := range s.db.Groups() {
		if in(g.GID) && !own[g.Name] && !s.formerGroup(g, r) {
			found = append(found, fmt.Sprintf("the group %s (gid %d)", g.Name, g.GID))
		}
	}
	return found
}

// formerSlot is a slot above the count, left from a time with more of them.
func (s *survey) formerSlot(u accounts.User, r *roster) bool {
	return r != nil && strings.HasPrefix(u.Name, s.layout.Prefix) && u.Home == s.layout.SlotHome(u.Name)
}

func (s *survey) formerGroup(g accounts.Group, r *roster) bool {
	u, ok := s.db.User(g.Name)
	return ok && u.GID == g.GID && s.formerSlot(u, r)
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
	slot := make(map[string]bool, len(r.slots))
	for _, m := range r.slots {
		slot[m.name] = true
	}
	for _, g := range s.db.Groups() {
		closed := slot[g.Name] || g.GID == r.service.GID
		for _, name := range g.Members {
			if closed && slot[name] && name != g.Name {
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

// memberships lists what is missing: the service in every slot's group, and
// everybody in the shared one.
func (s *survey) memberships(r *roster) {
	want := func(user, group string) {
		if g, ok := s.db.Group(group); !ok || !g.Has(user) {
			r.joins = append(r.joins, join{user, group})
		}
	}
	want(r.service.Name, r.shared.Name)
	for _, m := range r.slots {
		want(r.service.Name, m.name)
		want(m.name, r.shared.Name)
		if u, ok := s.db.User(m.name); ok && u.Shell != slotShell {
			r.shells = append(r.shells, m.name)
		}
	}
}
