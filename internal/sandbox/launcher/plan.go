package launcher

import (
	"cmp"
	"fmt"
	"slices"

	"agentworks-deploy/internal/sandbox/landlock"
)

// maxFrozen is how many entries a folder may hold in which a blocked name does
// not exist yet: each is bound by itself.
const maxFrozen = 64

// spotKind is what a mount of the command's view is there for. Where several
// fall on one path, the later of this list lies on top.
type spotKind int

const (
	areaSpot   spotKind = iota // a private area: an empty tmpfs, or an own devpts
	openSpot                   // bound as it is
	pinSpot                    // bound as it is, so that the name cannot be moved
	closedSpot                 // bound read-only: a read grant
	sealedSpot                 // bound read-only, and so is all below: blocked for writing
	frozenSpot                 // bound read-only: no new name in this folder
	hiddenSpot                 // an empty placeholder
)

// spot is one mount of the command's view.
type spot struct {
	path   string
	kind   spotKind
	object object // what is bound, or covered
	area   *area  // of an areaSpot
	tree   int    // the mount, detached at first; later a descriptor of its root
}

// area is a place with nothing in it but what is granted there.
type area struct {
	object
	fstype   string
	options  []string
	rights   uint64 // on the area itself, and so on everything in it
	writable bool
	tree     int
}

// planner decides which mounts a policy needs. It opens nothing but what open
// and entries give it, so that its rules can be tested as a table.
type planner struct {
	areas  []*area
	grants []grant
	covers []cover
	spots  []spot

	// openBelow opens a path below a granted folder, without links.
	openBelow func(folder object, name string) (object, error)
	// entries opens the files and folders that a folder holds.
	entries func(folder object) ([]object, error)
}

// plan returns the mounts in the order in which they are to be made.
func (pl *planner) plan() ([]spot, error) {
	for _, a := range pl.areas {
		pl.put(a.path, areaSpot, a.object, a)
	}
	pl.settleAreas()
	pl.coverAll()
	if err := pl.freeze(); err != nil {
		return nil, err
	}
	if err := pl.bindGrants(); err != nil {
		return nil, err
	}
	if err := pl.pin(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(pl.spots, func(a, b spot) int {
		return cmp.Or(cmp.Compare(depth(a.path), depth(b.path)), cmp.Compare(a.kind, b.kind))
	})
	return pl.spots, nil
}

// settleAreas gives each private area the rights of the grants that name it.
func (pl *planner) settleAreas() {
	for _, g := range pl.grants {
		if a := pl.areaOf(g.path); a != nil && a.path == g.path {
			a.rights |= g.kind.rights()
			a.writable = a.writable || g.kind == write
		}
	}
}

// coverAll places what hides and what seals. A cover inside a private area that
// nothing granted reaches into covers nothing that can be seen.
func (pl *planner) coverAll() {
	for _, c := range pl.covers {
		switch {
		case c.missing || !pl.visible(c.path):
		case c.hide:
			pl.put(c.path, hiddenSpot, c.object, nil)
		default:
			pl.put(c.path, sealedSpot, c.object, nil)
		}
	}
}

// freeze keeps blocked names that do not exist from coming into being: where
// the command could make one, the folder takes no new names (L-06).
func (pl *planner) freeze() error {
	for _, c := range pl.covers {
		folder := c.object
		if !c.missing || pl.covered(folder.path) || !pl.visible(folder.path) ||
			pl.writeGrant(folder.path) == nil || pl.has(folder.path, frozenSpot) {
			continue
		}
		if folder.path == "/" {
			return fmt.Errorf("blocked path %s: the root folder cannot be kept from new names", quote(c.name))
		}
		entries, err := pl.entries(folder)
		if err != nil {
			return fmt.Errorf("blocked path %s: list %s: %w", quote(c.name), quote(folder.path), err)
		}
		if len(entries) > maxFrozen {
			return fmt.Errorf("blocked path %s does not exist, and its folder %s holds more than %d entries",
				quote(c.name), quote(folder.path), maxFrozen)
		}
		pl.put(folder.path, frozenSpot, folder, nil)
		for _, entry := range entries {
			if !pl.covered(entry.path) && pl.visible(entry.path) {
				pl.put(entry.path, openSpot, entry, nil)
			}
		}
	}
	return nil
}

// bindGrants binds what has to be bound: a grant inside a private area, a grant
// to write inside something read-only, and a grant to read, since Landlock
// leaves modes, owners, times and attributes to whoever owns a file (S41).
func (pl *planner) bindGrants() error {
	byDepth := slices.Clone(pl.grants)
	slices.SortStableFunc(byDepth, func(a, b grant) int {
		return cmp.Or(cmp.Compare(depth(a.path), depth(b.path)), cmp.Compare(a.kind, b.kind))
	})
	for _, g := range byDepth {
		if pl.hidden(g.path) {
			continue
		}
		around := pl.around(g.path)
		switch {
		case around == nil:
			if g.kind == read && !g.system && pl.closes(g) {
				pl.put(g.path, closedSpot, g.object, nil)
			}
		case around.kind == areaSpot && around.path == g.path:
			// the grant is the area
		case around.kind == areaSpot:
			if err := pl.bindBack(g, around.area); err != nil {
				return err
			}
		case around.kind == closedSpot && g.kind == write && !pl.sealed(g.path):
			pl.put(g.path, openSpot, g.object, nil)
		}
	}
	return nil
}

// bindBack binds a grant into the private area that covers it. The area's own
// rights reach everything in it, so a grant that is less than they are needs a
// read-only mount, and one that is less than reading cannot be had.
func (pl *planner) bindBack(g grant, a *area) error {
	if g.kind == list && a.rights&^landlock.List != 0 {
		return fmt.Errorf("grant %s: names alone cannot be shown inside the private %s", quote(g.name), a.path)
	}
	kind := closedSpot
	if g.kind == write && !pl.sealed(g.path) {
		kind = openSpot
	}
	pl.put(g.path, kind, g.object, nil)
	return nil
}

// closes says whether a grant to read may get a read-only mount of its own: not
// inside a grant to write, and not around two of them, between which nothing
// could be renamed any more (S35).
func (pl *planner) closes(g grant) bool {
	if g.path == "/" || pl.writeGrant(g.path) != nil {
		return false
	}
	inside := ""
	for _, w := range pl.grants {
		if w.kind != write || !below(w.path, g.path) || w.path == inside {
			continue
		}
		if inside != "" {
			return false
		}
		inside = w.path
	}
	return true
}

// pin keeps the command from moving a cover away: a folder between a grant to
// write and the cover could be renamed with everything in it, and a link that
// led to the cover replaced (S43).
func (pl *planner) pin() error {
	for _, s := range slices.Clone(pl.spots) {
		if s.kind == areaSpot || s.kind >= sealedSpot {
			if err := pl.pinWay(s.path); err != nil {
				return err
			}
		}
	}
	for _, c := range pl.covers {
		for _, l := range c.links {
			if pl.writeGrant(l.path) == nil || pl.covered(l.path) || pl.has(l.path, pinSpot) {
				continue
			}
			pl.put(l.path, pinSpot, l.object, nil)
			if err := pl.pinWay(l.path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (pl *planner) pinWay(to string) error {
	w := pl.writeGrant(to)
	if w == nil {
		return nil
	}
	for name := parent(to); below(name, w.path); name = parent(name) {
		if pl.covered(name) || slices.ContainsFunc(pl.spots, func(s spot) bool { return s.path == name }) {
			continue
		}
		folder, err := pl.openBelow(w.object, name)
		if err != nil {
			return fmt.Errorf("folder %s: %w", quote(name), err)
		}
		pl.put(name, pinSpot, folder, nil)
	}
	return nil
}

func (pl *planner) put(name string, kind spotKind, what object, a *area) {
	if !pl.has(name, kind) {
		pl.spots = append(pl.spots, spot{path: name, kind: kind, object: what, area: a, tree: -1})
	}
}

func (pl *planner) has(name string, kind spotKind) bool {
	return slices.ContainsFunc(pl.spots, func(s spot) bool { return s.path == name && s.kind == kind })
}
