package launcher

import (
	"path"
	"slices"
)

// areaOf returns the innermost private area that a path is or lies in.
func (pl *planner) areaOf(name string) *area {
	var found *area
	for _, a := range pl.areas {
		if within(name, a.path) && (found == nil || below(a.path, found.path)) {
			found = a
		}
	}
	return found
}

// areaAround is areaOf for what may be an area itself.
func (pl *planner) areaAround(name string) *area {
	if name == "/" {
		return nil
	}
	return pl.areaOf(parent(name))
}

// visible says whether what the machine has at a path is what the command sees
// there: not inside a private area, unless a grant is bound back there.
func (pl *planner) visible(name string) bool {
	a := pl.areaOf(name)
	return a == nil || slices.ContainsFunc(pl.grants, func(g grant) bool {
		return below(g.path, a.path) && below(name, g.path) && pl.areaOf(g.path) == a
	})
}

// writeGrant returns the outermost grant under which the command may change
// what is at a path, on the machine and not in a private area.
func (pl *planner) writeGrant(name string) *grant {
	var found *grant
	around := pl.areaAround(name)
	if a := pl.areaOf(name); a != nil && a.path != name {
		around = a
	}
	for i, g := range pl.grants {
		if g.kind != write || !within(name, g.path) || pl.areaOf(g.path) != around {
			continue
		}
		if around != nil && around.path == g.path {
			continue
		}
		if found == nil || below(found.path, g.path) {
			found = &pl.grants[i]
		}
	}
	return found
}

// hidden, sealed and covered say whether a path is, or lies below, what is
// hidden, blocked for writing, or either.
func (pl *planner) hidden(name string) bool  { return pl.isUnder(name, true) }
func (pl *planner) sealed(name string) bool  { return pl.isUnder(name, false) }
func (pl *planner) covered(name string) bool { return pl.hidden(name) || pl.sealed(name) }

func (pl *planner) isUnder(name string, hide bool) bool {
	return slices.ContainsFunc(pl.covers, func(c cover) bool {
		return !c.missing && c.hide == hide && within(name, c.path)
	})
}

// around returns the innermost mount planned so far that a path is or lies in,
// the topmost where there are several.
func (pl *planner) around(name string) *spot {
	var found *spot
	for i := range pl.spots {
		s := &pl.spots[i]
		if within(name, s.path) && (found == nil || below(s.path, found.path) || s.path == found.path && s.kind > found.kind) {
			found = s
		}
	}
	return found
}

// needsMountPoint says whether a mount lies directly in a private area, and not
// on something that another mount brings along.
func (pl *planner) needsMountPoint(name string, a *area) bool {
	return below(name, a.path) && !slices.ContainsFunc(pl.spots, func(s spot) bool {
		return below(name, s.path) && below(s.path, a.path)
	})
}

func parent(name string) string { return path.Dir(name) }
