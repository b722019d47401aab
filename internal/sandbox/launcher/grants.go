package launcher

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/sandbox/landlock"
	"agentworks-deploy/internal/sandbox/policy"
)

// grantKind says what a grant gives.
type grantKind int

const (
	write    grantKind = iota // everything
	read                      // read, execute, list
	list                      // names of a folder
	facts                     // read without execute: /proc, /sys
	device                    // read and write one node in /dev
	terminal                  // the same with ioctls
)

func (k grantKind) rights() uint64 {
	switch k {
	case write:
		return landlock.Write
	case read:
		return landlock.Read
	case list:
		return landlock.List
	case facts:
		return landlock.Facts
	case device:
		return landlock.Device
	default:
		return landlock.Terminal
	}
}

// grant is one path that the command may use.
type grant struct {
	object
	name   string // as the policy spells it
	kind   grantKind
	system bool // the launcher's own, not the policy's
	links  []link
}

// cover is one path that is blocked: hidden, or closed for writing.
type cover struct {
	object        // what is covered; when missing, the deepest folder that exists
	name   string // as the policy spells it
	hide   bool
	// missing: there is nothing to cover yet, and nothing may come.
	missing bool
	links   []link
}

// grantSet is a policy whose every path has been opened, once.
type grantSet struct {
	grants  []grant
	skipped []string // names of grants that this account may not stat
	covers  []cover
	roots   []object // private roots
	workDir object
}

// openPolicy opens whatever the policy names. Grants and the work folder are
// opened under the opener's link rule; what is to be covered is resolved
// whoever owns the links, since the target is covered.
func openPolicy(open opener, p *policy.Policy, env []string) (*grantSet, error) {
	set := &grantSet{}
	for _, part := range []struct {
		kind  grantKind
		names []string
	}{{write, p.WritePaths}, {read, p.ReadPaths}, {list, p.ListPaths}} {
		for _, name := range part.names {
			if err := set.open(open, name, part.kind); err != nil {
				return nil, err
			}
		}
	}
	extra, err := extraSystemPaths(env)
	if err != nil {
		return nil, err
	}
	for _, name := range extra {
		if err := set.open(open, name, read); err != nil {
			return nil, err
		}
	}
	for _, sys := range systemGrants(p, env) {
		found, links, err := open.open(sys.name)
		if err != nil {
			continue // not on this machine, or not for this account
		}
		sys.object, sys.links, sys.system = found, links, true
		set.grants = append(set.grants, sys)
	}
	if set.workDir, _, err = open.open(p.WorkDir); err != nil {
		return nil, fmt.Errorf("work_dir %s: %w", quote(p.WorkDir), err)
	}
	if !set.workDir.isDir() {
		return nil, fmt.Errorf("work_dir %s: %w", quote(p.WorkDir), unix.ENOTDIR)
	}
	return set, set.openCovers(opener{own: open.own}, p)
}

// open adds a grant of the policy. A path that does not exist is left out; one
// that this account may not stat is left out and named; anything else that is
// wrong refuses the command (L-01, L-02, S38).
func (set *grantSet) open(open opener, name string, kind grantKind) error {
	found, links, err := open.open(name)
	switch {
	case err == nil:
		set.grants = append(set.grants, grant{object: found, name: name, kind: kind, links: links})
	case errors.Is(err, unix.ENOENT):
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		if !slices.Contains(set.skipped, name) {
			set.skipped = append(set.skipped, name)
		}
	default:
		return fmt.Errorf("grant %s: %w", quote(name), err)
	}
	return nil
}

func (set *grantSet) openCovers(open opener, p *policy.Policy) error {
	for _, name := range p.PrivateRoots {
		found, _, err := open.open(name)
		if errors.Is(err, unix.ENOENT) {
			continue // nothing to keep private
		}
		if err != nil {
			return fmt.Errorf("private root %s: %w", quote(name), err)
		}
		if !found.isDir() {
			return fmt.Errorf("private root %s: %w", quote(name), unix.ENOTDIR)
		}
		if found.path == "/" {
			return fmt.Errorf("private root %s: the root folder cannot be private", quote(name))
		}
		set.roots = append(set.roots, found)
	}
	for _, part := range []struct {
		what  string
		hide  bool
		names []string
	}{{"hidden path", true, p.HiddenPaths}, {"read-only path", false, p.ReadOnlyOverlays}} {
		for _, name := range part.names {
			c := cover{name: name, hide: part.hide}
			var err error
			c.object, c.links, err = open.open(name)
			c.missing = errors.Is(err, unix.ENOENT)
			if err != nil && !c.missing {
				return fmt.Errorf("%s %s: %w", part.what, quote(name), err)
			}
			if c.path == "/" && !c.missing {
				return fmt.Errorf("%s %s: the root folder cannot be covered", part.what, quote(name))
			}
			set.covers = append(set.covers, c)
		}
	}
	return nil
}

// within says whether a link-free path is a folder or lies below it.
func within(name, folder string) bool {
	return name == folder || folder == "/" || strings.HasPrefix(name, folder+"/")
}

// below is within without the folder itself.
func below(name, folder string) bool { return name != folder && within(name, folder) }

// relative is the way from a folder to a path within it.
func relative(name, folder string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, folder), "/")
}

// depth counts the components of a link-free path.
func depth(name string) int {
	if name == "/" {
		return 0
	}
	return strings.Count(path.Clean(name), "/")
}
