package launcher

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/sandbox/landlock"
	"agentworks-deploy/internal/sandbox/policy"
)

// view is the command's own view of the file system: the mounts made for it.
// The empty view is the machine's.
type view struct {
	areas []*area
	made  []spot // attached, in this order
}

// makeView makes every mount that the policy asks for. All of them are built
// first, detached, from the descriptors that were opened and looked at; only
// then are they attached, outer ones first.
func makeView(set *grantSet, p *policy.Policy) (*view, error) {
	areas, err := privateAreas(set, p)
	if err != nil {
		return nil, err
	}
	pl := &planner{areas: areas, grants: set.grants, covers: set.covers, openBelow: openBelow, entries: openEntries}
	spots, err := pl.plan()
	if err != nil {
		return nil, err
	}
	v := &view{areas: areas}
	if err := v.build(spots, set.grants, pl); err != nil {
		return nil, err
	}
	for _, s := range spots {
		if err := v.attach(s); err != nil {
			return nil, fmt.Errorf("mount over %s: %w", quote(s.path), err)
		}
	}
	return v, nil
}

// privateAreas lists what becomes empty: /tmp, /dev/shm, private roots,
// /dev/pts, which gets terminals of its own, and always /run, since Landlock
// leaves the machine's sockets open before its ABI 9: a user manager of the
// account runs whatever it is asked to, outside every sandbox.
func privateAreas(set *grantSet, p *policy.Policy) ([]*area, error) {
	var areas []*area
	add := func(a *area) {
		same := func(b *area) bool { return b.path == a.path }
		if !slices.ContainsFunc(areas, same) {
			areas = append(areas, a)
		}
	}
	own := []struct {
		wanted bool
		name   string
		must   bool
		area   area
	}{
		{p.PrivateTmp, "/tmp", true, area{fstype: "tmpfs", options: []string{"mode=1777"}, rights: landlock.Write, writable: true}},
		{ownSharedMemory(p), "/dev/shm", false, area{fstype: "tmpfs", options: []string{"mode=1777"}, rights: landlock.Write, writable: true}},
		{p.PrivatePTS, "/dev/pts", true, area{fstype: "devpts", options: []string{"ptmxmode=0666", "mode=0620"}, rights: landlock.Terminal, writable: true}},
		{true, "/run", false, area{fstype: "tmpfs", options: []string{"mode=0755"}, rights: landlock.List}},
		{true, "/var/run", false, area{fstype: "tmpfs", options: []string{"mode=0755"}, rights: landlock.List}},
	}
	for _, o := range own {
		if !o.wanted {
			continue
		}
		found, _, err := opener{}.open(o.name)
		if errors.Is(err, unix.ENOENT) && !o.must {
			continue
		}
		if err == nil && !found.isDir() {
			err = unix.ENOTDIR
		}
		if err != nil {
			return nil, fmt.Errorf("private %s: %w", o.name, err)
		}
		o.area.object = found
		add(&o.area)
	}
	for _, root := range set.roots {
		add(&area{object: root, fstype: "tmpfs", options: []string{"mode=0755"}, rights: landlock.List})
	}
	return areas, nil
}

// build makes every mount, detached.
func (v *view) build(spots []spot, grants []grant, pl *planner) error {
	for i := range spots {
		s := &spots[i]
		var err error
		switch s.kind {
		case areaSpot:
			s.tree, err = buildArea(s.area, spots, grants, pl)
		case hiddenSpot:
			s.tree, err = placeholder(s.object.isDir())
		case openSpot, pinSpot:
			s.tree, err = cloneTree(s.object.fd)
		default:
			if s.tree, err = cloneTree(s.object.fd); err == nil {
				err = makeReadOnly(s.tree, true)
			}
		}
		if err != nil {
			return fmt.Errorf("mount for %s: %w", quote(s.path), err)
		}
	}
	return nil
}

// buildArea makes an empty area with the mount points of what comes into it.
// They are made inside our own tmpfs, never on the machine (S5, S10).
func buildArea(a *area, spots []spot, grants []grant, pl *planner) (int, error) {
	tree, err := newFilesystem(a.fstype, a.options)
	if err != nil {
		return -1, err
	}
	a.tree = tree
	for _, s := range spots {
		if pl.needsMountPoint(s.path, a) {
			if err := makeMountPoint(tree, relative(s.path, a.path), s.object.isDir()); err != nil {
				return -1, fmt.Errorf("mount point %s: %w", quote(s.path), err)
			}
		}
	}
	for _, g := range grants {
		for _, l := range g.links {
			// A granted path that leads through a link of the covered folder
			// still does.
			if pl.areaOf(l.path) == a && !pl.visible(l.path) {
				if err := makeLink(tree, relative(l.path, a.path), l.target); err != nil {
					return -1, fmt.Errorf("link %s: %w", quote(l.path), err)
				}
			}
		}
	}
	if !a.writable {
		err = makeReadOnly(tree, false)
	}
	return tree, err
}

// attach puts a mount in its place: on the descriptor that was opened first, or,
// where one of our mounts covers that by now, on the same thing seen through
// that mount.
func (v *view) attach(s spot) error {
	target := s.object.fd
	if above := v.above(s.path); above != nil {
		fd, err := v.reopen(*above, s.path, s.object)
		if err != nil {
			return err
		}
		target = fd
	}
	if err := moveTree(s.tree, target); err != nil {
		return err
	}
	v.made = append(v.made, s)
	return nil
}

// above returns the innermost and topmost of our mounts that covers a path.
func (v *view) above(name string) *spot {
	var found *spot
	for i := range v.made {
		if s := &v.made[i]; within(name, s.path) && (found == nil || within(s.path, found.path)) {
			found = s
		}
	}
	return found
}

// reopen opens a path from the root of the mount of ours that covers it. It is
// never a user's path by name: no link is followed, and what is found must be
// what was opened first, unless it is in a tmpfs that we filled.
func (v *view) reopen(above spot, name string, was object) (int, error) {
	way := relative(name, above.path)
	if way == "" {
		return above.tree, nil
	}
	fd, err := openat2(above.tree, way, unix.O_NOFOLLOW,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return -1, err
	}
	if above.kind == areaSpot {
		return fd, nil
	}
	now, err := inspect(fd, name)
	if err != nil {
		return -1, err
	}
	if !now.sameAs(was) {
		return -1, errors.New("it was replaced while the sandbox was made")
	}
	return fd, nil
}

// enter makes a folder, as the command will see it, the current one.
func (v *view) enter(dir object) error {
	fd := dir.fd
	if above := v.above(dir.path); above != nil {
		var err error
		if fd, err = v.reopen(*above, dir.path, dir); err != nil {
			return fmt.Errorf("enter %s: %w", quote(dir.path), err)
		}
	}
	if err := unix.Fchdir(fd); err != nil {
		return fmt.Errorf("enter %s: %w", quote(dir.path), err)
	}
	// A folder that was moved or deleted meanwhile, or lies outside the
	// command's view, is told by its name (S29).
	at, err := unix.Getwd()
	if err != nil {
		return fmt.Errorf("enter %s: %w", quote(dir.path), err)
	}
	if at != dir.path {
		return fmt.Errorf("enter %s: the kernel calls it %s", quote(dir.path), quote(at))
	}
	return nil
}

// areaAt returns the private area at exactly this path.
func (v *view) areaAt(name string) *area {
	for _, a := range v.areas {
		if a.path == name {
			return a
		}
	}
	return nil
}
