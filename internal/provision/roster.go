package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/sandbox/slots"
)

const slotComment = "AgentWorks slot"

// roster is one look at the accounts of a product: who there is, and who must
// be added. Ids of accounts that do not exist yet are the ones they will get.
type roster struct {
	service accounts.User
	shared  accounts.Group
	slots   []member
	former  []member // slots above the count; nothing of them is ever removed

	newShared bool
	joins     []join   // memberships to add
	leaves    []join   // memberships to take away
	shells    []string // slots with another login shell
	unlocked  []string // slots with a password
	guests    []guest
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

// survey is what the accounts are compared with.
type survey struct {
	layout hosts.Layout
	block  int // slots.ids of the host file, 0 when not set
	db     *accounts.Database
	taken  []idRange // login.defs, subordinate ids, systemd
	// addIDs makes the database know accounts with these ids that it does not list.
	addIDs func(ctx context.Context, ids []uint32) error
	local  func(name string) bool // the account is a line of /etc/passwd
	// localGroup: the group is a line of /etc/group. unlocked: accounts that a
	// password opens.
	localGroup func(name string) bool
	unlocked   map[string]bool
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
	for _, u := range s.db.Users() {
		if s.formerSlot(u, r) {
			g, _ := s.db.Group(u.Name)
			r.former = append(r.former, member{name: u.Name, uid: u.UID, gid: g.GID})
		}
	}
	slices.SortFunc(r.former, func(a, b member) int { return slots.CompareSlots(a.name, b.name) })
	s.twins(r, &bad)
	s.intruders(r, &bad)
	s.beyond(r, &bad)
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
	return r != nil && slots.ValidSlot(s.layout.Prefix, u.Name) && u.Home == s.layout.SlotHome(u.Name) &&
		!slices.ContainsFunc(r.slots, func(m member) bool { return m.name == u.Name })
}

func (s *survey) formerGroup(g accounts.Group, r *roster) bool {
	u, ok := s.db.User(g.Name)
	return ok && u.GID == g.GID && s.formerSlot(u, r)
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
	}
}
