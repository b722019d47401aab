package slottable

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/sandbox/slots"
)

const (
	treeMode = unix.S_ISGID | 0o770 // of a tree whose user holds a slot
	others   = 0o007
	setIDs   = unix.S_ISUID | unix.S_ISGID
)

// rule says how a file in a tree shall be.
type rule func(safefs.Stat) safefs.Attr

// given: the files are the service's, a slot with group gid works on them
// through its group, and others are out (case T-08).
func given(service ids, gid int) rule {
	return ruleFor(service.uid, gid, unix.S_ISGID|0o070, 0o060)
}

// returned: the files are the service's alone.
func returned(service ids) rule {
	return ruleFor(service.uid, service.gid, 0, 0)
}

// ruleFor leaves links as they are: they have no mode, and a user's link that
// the service came to own would be followed by programs which trust the
// service's links. What somebody made setuid must not become that for the
// service.
func ruleFor(uid, gid int, folder, file uint32) rule {
	return func(st safefs.Stat) safefs.Attr {
		switch {
		case st.IsLink():
			return safefs.Keep()
		case st.IsDir():
			return safefs.Attr{UID: uid, GID: gid, Set: folder, Clear: others}
		}
		a := safefs.Attr{UID: uid, GID: gid, Set: file, Clear: others | setIDs}
		if file != 0 && st.Perm()&0o111 != 0 {
			a.Set |= 0o010
		}
		return a
	}
}

// tree is one user's tree while it changes hands.
type tree struct {
	*run
	dir  *safefs.Dir
	dry  bool   // look, change nothing
	slot string // whose group comes or goes
	own  ids    // of that slot
	kept ids    // whose ACL entries may stay beside the service's; -1 is nobody

	touched, linked, mounted int
}

// giveTree opens user's tree to slot, and makes it where it is missing. Its own
// folder comes last: until then the slot cannot enter.
func (r *run) giveTree(ctx context.Context, user, slot string, dry bool) error {
	t, err := r.tree(user, slot, dry)
	top := safefs.Exact(r.service.uid, t.own.gid, treeMode)
	if errors.Is(err, fs.ErrNotExist) {
		r.did("user-tree", slot, "%s made for %s", r.UserTree(user), slot)
		if dry {
			return nil
		}
		dir, _, err := r.users.EnsureDir(user, top)
		if err != nil {
			return err
		}
		return dir.Close()
	}
	if err != nil {
		return err
	}
	defer t.dir.Close()
	t.kept = t.own
	if err := t.content(ctx, given(r.service, t.own.gid)); err != nil {
		return err
	}
	if err := t.top(top); err != nil {
		return err
	}
	t.report("given to "+slot, "already given to "+slot)
	return nil
}

// takeTree gives user's tree back to the service, its own folder first: from
// then on slot cannot enter.
func (r *run) takeTree(ctx context.Context, user, slot, why string, dry bool) error {
	t, err := r.tree(user, slot, dry)
	if errors.Is(err, fs.ErrNotExist) {
		r.row(report.OK, "user-tree", slot, "%s is not there", r.UserTree(user))
		return nil
	}
	if err != nil {
		return err
	}
	defer t.dir.Close()
	if err := t.top(safefs.Attr{UID: r.service.uid, GID: r.service.gid, Clear: others}); err != nil {
		return err
	}
	if err := t.content(ctx, returned(r.service)); err != nil {
		return err
	}
	t.report(why, "already given back")
	return nil
}

// rehearse does change without changing anything or telling of it, so that what
// forbids it is known before the first thing is changed.
func (r *run) rehearse(change func(dry bool) error) error {
	rows := r.rows
	err := change(true)
	r.rows = rows
	return err
}

func (r *run) tree(user, slot string, dry bool) (*tree, error) {
	t := &tree{run: r, dry: dry, slot: slot, kept: ids{-1, -1}}
	t.own, _ = r.account(slot)
	var err error
	t.dir, err = r.users.Own(user)
	switch path := r.UserTree(user); {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return t, report.Coded(report.ExitState, "%s is no folder, so it is given to nobody: %w; next, on the host: look at it, then rm %s", path, err, report.Quote(path))
	case errors.Is(err, unix.EXDEV):
		return t, report.Coded(report.ExitState, "%s is a mount and no folder of %s, so it is given to nobody and taken from nobody; next, on the host: umount %s", path, r.Users(), report.Quote(path))
	}
	return t, err
}

// top changes the tree's own folder. It has no ACL: one could let others in,
// and its mask would take the place of the group's bits.
func (t *tree) top(want safefs.Attr) error {
	st, err := t.dir.Stat()
	if err != nil {
		return err
	}
	return t.node(&t.dir.Node, st, want, func(safefs.ACL) safefs.ACL { return nil })
}

// content changes everything below the tree's own folder.
func (t *tree) content(ctx context.Context, want rule) error {
	links := t.dir.Hardlinks()
	err := t.dir.Walk(ctx, func(e *safefs.Entry) error {
		if e.Mounted {
			t.mounted++
			return nil
		}
		if kept, err := links.Met(e); kept || err != nil {
			return err
		}
		return t.entry(e, want)
	})
	if err != nil {
		return err
	}
	return links.Each(ctx, func(n *safefs.Node, st safefs.Stat, inside bool) error {
		if inside {
			return t.node(n, st, want(st), t.withoutStrangers)
		}
		if want(st).Diff(st) != "" {
			t.linked++
		}
		return t.node(n, st, t.harmless(st), func(a safefs.ACL) safefs.ACL { return a })
	})
}

// entry changes one file that has no other name. It is opened only where there
// is something to do, and looked at again then.
func (t *tree) entry(e *safefs.Entry, want rule) error {
	differs := want(e.Stat).Diff(e.Stat) != ""
	for _, kind := range lists(e.Stat) {
		if differs {
			break
		}
		acl, err := e.ACL(kind)
		if err != nil {
			return err
		}
		differs = !slices.Equal(acl, t.withoutStrangers(acl))
	}
	if !differs {
		return nil
	}
	n, err := e.Open()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.EXDEV): // a file that something is mounted on
		t.mounted++
		return nil
	case err != nil:
		return err
	}
	defer n.Close()
	st, err := n.Stat()
	if err != nil {
		return err
	}
	if st.IsRegular() && st.Links > 1 { // exchanged since it was met
		t.linked++
		return nil
	}
	return t.node(n, st, want(st), t.withoutStrangers)
}

// node gives one file its ACLs, owner, group and mode.
func (t *tree) node(n *safefs.Node, st safefs.Stat, want safefs.Attr, list func(safefs.ACL) safefs.ACL) error {
	differs := want.Diff(st) != ""
	for _, kind := range lists(st) {
		acl, err := n.ACL(kind)
		if err != nil {
			return err
		}
		rest := list(acl)
		if slices.Equal(acl, rest) {
			continue
		}
		differs = true
		if t.dry {
			continue
		}
		if _, err := n.EnsureACL(kind, rest); err != nil {
			return t.refused(n, err)
		}
	}
	if !differs {
		return nil
	}
	t.touched++
	if t.dry {
		return t.refused(n, nil)
	}
	_, err := n.Ensure(want)
	return t.refused(n, err)
}

// refused is err, and for a file that nobody can change the way out. Without an
// error it only looks.
func (t *tree) refused(n *safefs.Node, err error) error {
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	frozen, look := n.Frozen()
	if look != nil || !frozen {
		return err
	}
	return report.Coded(report.ExitState, "%s is immutable or append-only, so it cannot change hands; next, on the host: chattr -i -a %s, and the same again", n.Path(), report.Quote(n.Path()))
}

// lists are the ACLs that a file may have.
func lists(st safefs.Stat) []safefs.ACLKind {
	switch {
	case st.IsLink():
		return nil
	case st.IsDir():
		return []safefs.ACLKind{safefs.AccessACL, safefs.DefaultACL}
	}
	return []safefs.ACLKind{safefs.AccessACL}
}

// withoutStrangers takes from a list whoever is named in it and has no business
// in the tree: a slot may have named another one.
func (t *tree) withoutStrangers(a safefs.ACL) safefs.ACL {
	if a == nil {
		return nil
	}
	return a.Without(func(e safefs.ACLEntry) bool {
		id := int(e.ID)
		if e.Tag == safefs.ACLUser {
			return id != t.service.uid && id != t.kept.uid
		}
		return id != t.service.gid && id != t.kept.gid
	})
}

// harmless is all that is done to a file with names that may stand elsewhere: a
// program of a slot, or of the service, runs as whoever starts it.
func (t *tree) harmless(st safefs.Stat) safefs.Attr {
	if t.isSlot(st.UID) || st.UID == t.service.uid {
		return safefs.Disarmed(st)
	}
	return safefs.Keep()
}

func (t *tree) report(done, already string) {
	path := t.UserTree(filepath.Base(t.dir.Path()))
	if t.touched == 0 {
		t.row(report.OK, "user-tree", t.slot, "%s %s", path, already)
	} else {
		t.did("user-tree", t.slot, "%s %s: %s", path, done, count(t.touched, "difference", "differences"))
	}
	if t.linked > 0 {
		t.row(report.Warn, "user-tree", t.slot, "%s below %s left as they are: further names of theirs are not in this tree, or came a moment ago; next, on the host: find %s -xdev -type f -links +1, and put a copy (cp -p) in the place of each that %s needs",
			count(t.linked, "hard-linked file", "hard-linked files"), path, report.Quote(path), t.slot)
	}
	if t.mounted > 0 {
		t.row(report.Warn, "user-tree", t.slot, "%s below %s left as they are", count(t.mounted, "mount", "mounts"), path)
	}
}

// strays are the trees that are open to slot although their users do not hold
// it: left so by hand, or by programs that free a slot and no more. All of them
// would be the next holder's to read.
func (r *run) strays(slot, holder string) ([]string, error) {
	own, ok := r.own(slot)
	if !ok || own.gid == r.service.gid {
		return nil, nil
	}
	names, err := r.users.Names()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, name := range names {
		if name == holder || !slots.ValidUserID(name) {
			continue
		}
		st, err := r.users.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if st.IsDir() && st.GID == own.gid {
			found = append(found, name)
		}
	}
	return found, nil
}
