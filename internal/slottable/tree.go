package slottable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/sandbox/slots"
)

const (
	treeMode = unix.S_ISGID | 0o770 // of a tree whose user holds a slot
	others   = 0o007
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
		a := safefs.Attr{UID: uid, GID: gid, Set: file, Clear: others | unix.S_ISUID | unix.S_ISGID}
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
	slot string // whose group comes or goes
	own  ids    // of that slot

	touched, linked, mounted int
}

// giveTree opens user's tree to slot, and makes it where it is missing. Its own
// folder comes last: until then the slot cannot enter.
func (r *run) giveTree(ctx context.Context, user, slot string) error {
	own, _ := r.account(slot)
	top := safefs.Exact(r.service.uid, own.gid, treeMode)
	t, err := r.tree(user, slot)
	if errors.Is(err, fs.ErrNotExist) {
		r.did("user-tree", slot, "%s made for %s", r.UserTree(user), slot)
		if r.Plan {
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
	if err := t.content(ctx, given(r.service, own.gid)); err != nil {
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
func (r *run) takeTree(ctx context.Context, user, slot, why string) error {
	t, err := r.tree(user, slot)
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

func (r *run) tree(user, slot string) (*tree, error) {
	own, ok := r.account(slot)
	if !ok {
		return nil, r.notProvisioned(fmt.Errorf("there is no account %s", slot))
	}
	dir, err := r.users.Dir(user)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil, report.Coded(report.ExitState, "%s is no folder, so it is not given to anybody: %w", r.UserTree(user), err)
	}
	if err != nil {
		return nil, err
	}
	return &tree{run: r, dir: dir, slot: slot, own: own}, nil
}

// top changes the tree's own folder. It has no ACL: one could let others in,
// and its mask would take the place of the group's bits.
func (t *tree) top(want safefs.Attr) error {
	st, err := t.dir.Stat()
	if err != nil {
		return err
	}
	differs := want.Diff(st) != ""
	for _, kind := range []safefs.ACLKind{safefs.AccessACL, safefs.DefaultACL} {
		acl, err := t.dir.ACL(kind)
		if err != nil {
			return err
		}
		if acl == nil {
			continue
		}
		differs = true
		if t.Plan {
			continue
		}
		if _, err := t.dir.EnsureACL(kind, nil); err != nil {
			return err
		}
	}
	if differs {
		t.touched++
	}
	if t.Plan {
		return nil
	}
	_, err = t.dir.Ensure(want)
	return err
}

// content changes everything below the tree's own folder.
func (t *tree) content(ctx context.Context, want rule) error {
	protected, err := t.linksProtected()
	if err != nil {
		return err
	}
	shared := func(st safefs.Stat) bool { return t.shared(st, protected) }
	spare := func(st safefs.Stat) safefs.Attr {
		if shared(st) {
			return safefs.Keep()
		}
		return want(st)
	}
	return t.dir.Walk(ctx, func(e *safefs.Entry) error {
		if e.Mounted {
			t.mounted++
			return nil
		}
		if shared(e.Stat) && want(e.Stat).Diff(e.Stat) != "" {
			t.linked++
		}
		diff := spare(e.Stat).Diff(e.Stat)
		if !t.Plan {
			diff, err = e.Ensure(spare)
		}
		if errors.Is(err, unix.EXDEV) { // a file that something is mounted on
			t.mounted++
			return nil
		}
		if diff != "" {
			t.touched++
		}
		return err
	})
}

// shared says that a file may be somebody else's: it has further names, which
// may stand anywhere on this file system, and the one here could be a user's way
// to have root open it to him. What is the slot's already passes. So does the
// service's own file where the kernel protects hard links: nobody but the service
// can have linked it there, as a clone of a repository does.
func (t *tree) shared(st safefs.Stat, protected bool) bool {
	if !st.IsRegular() || st.Links < 2 {
		return false
	}
	slots := st.UID == t.own.uid || st.UID == t.service.uid && st.GID == t.own.gid
	services := st.UID == t.service.uid && st.GID == t.service.gid
	return !slots && !(services && protected)
}

// linksProtected reads the sysctl fs.protected_hardlinks.
func (t *tree) linksProtected() (bool, error) {
	data, err := os.ReadFile(filepath.Join(t.sys.Proc, "sys/fs/protected_hardlinks"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return strings.TrimSpace(string(data)) == "1", err
}

func (t *tree) report(done, already string) {
	path := t.UserTree(filepath.Base(t.dir.Path()))
	if t.touched == 0 {
		t.row(report.OK, "user-tree", t.slot, "%s %s", path, already)
	} else {
		t.did("user-tree", t.slot, "%s %s: %s", path, done, count(t.touched, "difference", "differences"))
	}
	if t.linked > 0 {
		t.row(report.Warn, "user-tree", t.slot, "%s below %s left as they are: hard links of files that may be somebody else's", count(t.linked, "name", "names"), path)
	}
	if t.mounted > 0 {
		t.row(report.Warn, "user-tree", t.slot, "%s below %s left as they are", count(t.mounted, "mount", "mounts"), path)
	}
}

// strays are the trees that are open to slot although their users do not hold
// it: left so by hand, or by programs that free a slot and no more. All of them
// would be the next holder's to read.
func (r *run) strays(slot, holder string) ([]string, error) {
	own, _ := r.account(slot)
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
