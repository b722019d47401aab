package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

const setgid = 0o2000

// sharedFolders opens the folders that all slots share to their group, with a
// default ACL, so that what the service makes in them later is open too,
// whatever group and mode it has (case P-07). Those that are not there are the
// platform's to make.
func (r *run) sharedFolders(ctx context.Context) (findings, error) {
	var f findings
	private, err := r.privateRoots()
	if err != nil {
		return f, err
	}
	docs, err := safefs.OpenDir(r.sys.at(r.l.Docs))
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	defer docs.Close()
	var present []string
	for _, name := range hosts.SharedFolders() {
		p := path.Join(r.l.Docs, name)
		dir, err := r.sharedFolder(docs, name)
		if err != nil {
			return f, err
		}
		if dir == nil {
			continue
		}
		o := r.opener(private, false)
		err = o.tree(ctx, dir, p)
		dir.Close()
		if err != nil {
			return f, err
		}
		if o.folders+o.files > 0 {
			f.add("", "open %s to the group %s: %d folders, %d files", p, r.roster.shared.Name, o.folders, o.files)
		}
		if o.armed > 0 {
			f.add("", "take setuid and setgid from %d files in %s", o.armed, p)
		}
		if o.folders+o.files+o.armed > 0 {
			present = append(present, name)
		}
		if o.linked > 0 {
			f.notes = append(f.notes, report.Row{State: report.Warn, Check: "shared-folders",
				Detail: fmt.Sprintf("%s: %d hard-linked files are left as they are: further names of theirs are not in this folder, or came a moment ago; to see them, on the host: find %s -xdev -type f -links +1", p, o.linked, p)})
		}
	}
	socket, err := r.browserSockets(docs, &f)
	if err != nil {
		return f, err
	}
	f.apply = func(ctx context.Context) error {
		if err := socket(); err != nil {
			return err
		}
		docs, err := safefs.OpenDir(r.sys.at(r.l.Docs))
		if err != nil {
			return err
		}
		defer docs.Close()
		for _, name := range present {
			dir, err := docs.Own(name)
			if err != nil {
				return err
			}
			err = r.opener(private, true).tree(ctx, dir, path.Join(r.l.Docs, name))
			dir.Close()
			if err != nil {
				return err
			}
		}
		return nil
	}
	return f, nil
}

// sharedFolder opens one; nil where there is none. Who put something else in its
// place, as the service can, gets it left alone and the run refused at its end:
// the other steps do not need it.
func (r *run) sharedFolder(docs *safefs.Dir, name string) (*safefs.Dir, error) {
	p := path.Join(r.l.Docs, name)
	dir, err := docs.Own(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, unix.EXDEV):
		r.refuse("%s is a mount and not a folder of %s; it is left alone; next, on the host: umount %s", p, r.l.Docs, p)
		return nil, nil
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		st, err := docs.Lstat(name)
		if err == nil {
			r.refuse("%s is a %s and not a folder; it is left alone; next, on the host: look at it, then %s", p, st.Kind(), aside(p, st))
		}
		return nil, err
	}
	return dir, err
}

// browserSockets closes <docs>/tmp/.agent-browser, which stands in a shared
// folder and would inherit its ACL.
func (r *run) browserSockets(docs *safefs.Dir, f *findings) (apply func() error, err error) {
	nothing := func() error { return nil }
	p := path.Join(r.l.Docs, "tmp/.agent-browser")
	open := func(docs *safefs.Dir) (*safefs.Dir, error) {
		tmp, err := docs.Own("tmp")
		if err != nil {
			return nil, err
		}
		defer tmp.Close()
		return tmp.Own(".agent-browser")
	}
	dir, err := open(docs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nothing, nil
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EXDEV): // slots can write in tmp
		f.notes = append(f.notes, report.Row{State: report.Warn, Check: "shared-folders",
			Detail: fmt.Sprintf("%s is not a folder; it is left alone", p)})
		return nothing, nil
	case err != nil:
		return nil, err
	}
	defer dir.Close()
	want := safefs.Exact(int(r.roster.service.UID), int(r.roster.service.GID), 0o700)
	st, err := dir.Stat()
	if err != nil {
		return nil, err
	}
	listed := false
	for _, kind := range []safefs.ACLKind{safefs.AccessACL, safefs.DefaultACL} {
		acl, err := dir.ACL(kind)
		if err != nil {
			return nil, err
		}
		listed = listed || acl != nil
	}
	if want.Diff(st) == "" && !listed {
		return nothing, nil
	}
	f.add("", "close %s: %s:%s 0700, no ACL", p, r.l.Product, r.l.Product)
	return func() error {
		docs, err := safefs.OpenDir(r.sys.at(r.l.Docs))
		if err != nil {
			return err
		}
		defer docs.Close()
		dir, err := open(docs)
		if err != nil {
			return err
		}
		defer dir.Close()
		for _, kind := range []safefs.ACLKind{safefs.AccessACL, safefs.DefaultACL} {
			if _, err := dir.EnsureACL(kind, nil); err != nil {
				return err
			}
		}
		_, err = dir.Ensure(want)
		return err
	}, nil
}

// opener walks one shared folder; it counts what is closed to the group and,
// when it applies, opens it.
type opener struct {
	*run
	gid            int
	private        []string
	apply          bool
	folders, files int
	armed, linked  int
}

func (r *run) opener(private []string, apply bool) *opener {
	return &opener{run: r, gid: int(r.roster.shared.GID), private: private, apply: apply}
}

// tree opens dir, whose path (without a scratch root) is p, and all below it but
// private roots.
func (o *opener) tree(ctx context.Context, dir *safefs.Dir, p string) error {
	if slices.Contains(o.private, p) {
		return nil
	}
	st, err := dir.Stat()
	if err != nil {
		return err
	}
	if err := o.node(&dir.Node, st); err != nil {
		return err
	}
	prefix := len(dir.Path())
	links := dir.Hardlinks()
	err = dir.Walk(ctx, func(e *safefs.Entry) error {
		if !slices.Contains(o.private, p+e.Path()[prefix:]) {
			if kept, err := links.Met(e); kept || err != nil {
				return err
			}
			return o.entry(e)
		}
		if e.Stat.IsDir() && !e.Mounted {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return err
	}
	return links.Each(ctx, func(n *safefs.Node, st safefs.Stat, inside bool) error {
		if inside {
			return o.node(n, st)
		}
		if differs, err := o.differs(n, st); err != nil || differs {
			o.linked++
			return errors.Join(err, o.disarm(n, st))
		}
		return o.disarm(n, st)
	})
}

func (o *opener) entry(e *safefs.Entry) error {
	if e.Mounted || !e.Stat.IsDir() && !e.Stat.IsRegular() {
		return nil
	}
	n, err := e.Open()
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EXDEV): // gone, or a file that something is mounted on
		return nil
	case err != nil:
		return err
	}
	defer n.Close()
	st, err := n.Stat()
	if err != nil {
		return err
	}
	if st.IsDir() != e.Stat.IsDir() || !st.IsDir() && (!st.IsRegular() || st.Links > 1) {
		return nil // exchanged meanwhile
	}
	return o.node(n, st)
}

// disarm takes setuid and setgid from a file.
func (o *opener) disarm(n *safefs.Node, st safefs.Stat) error {
	if o.disarmed(st).Diff(st) == "" {
		return nil
	}
	o.armed++
	if !o.apply {
		return nil
	}
	_, err := n.Ensure(o.disarmed(st))
	return err
}

func (o *opener) differs(n *safefs.Node, st safefs.Stat) (bool, error) {
	have, err := n.ACL(safefs.AccessACL)
	return st.GID != o.gid || !slices.Equal(have, openACL(have, st, o.gid)), err
}

// node compares one file or folder by its descriptor, and opens it when asked.
func (o *opener) node(n *safefs.Node, st safefs.Stat) error {
	if err := o.disarm(n, st); err != nil {
		return err
	}
	have, err := n.ACL(safefs.AccessACL)
	if err != nil {
		return err
	}
	access := openACL(have, st, o.gid)
	differs := st.GID != o.gid || !slices.Equal(have, access)
	var inherit safefs.ACL
	if st.IsDir() {
		old, err := n.ACL(safefs.DefaultACL)
		if err != nil {
			return err
		}
		inherit = defaultACL(old, access, o.gid)
		differs = differs || st.Perm()&setgid == 0 || !slices.Equal(old, inherit)
	}
	if !differs {
		return nil
	}
	if st.IsDir() {
		o.folders++
	} else {
		o.files++
	}
	if !o.apply {
		return nil
	}
	// The group first: until then the wider bits would be the old group's.
	if _, err := n.Ensure(safefs.Attr{UID: -1, GID: o.gid}); err != nil {
		return err
	}
	if _, err := n.EnsureACL(safefs.AccessACL, access); err != nil {
		return err
	}
	if !st.IsDir() {
		return nil
	}
	if _, err := n.EnsureACL(safefs.DefaultACL, inherit); err != nil {
		return err
	}
	_, err = n.Ensure(safefs.Attr{UID: -1, GID: -1, Set: setgid})
	return err
}

// openACL is have (or the mode) with read and write, and execute where it makes
// sense, for the owning group and for gid. Whoever else is named keeps what was
// effective: a wider mask must not wake up rights that the old one held down
// (case B21).
func openACL(have safefs.ACL, st safefs.Stat, gid int) safefs.ACL {
	perm := uint16(6)
	if st.IsDir() || st.Perm()&0o111 != 0 {
		perm = 7
	}
	if have == nil {
		have = safefs.ACLFromMode(st.Perm())
	}
	return widen(have, perm, gid)
}

// defaultACL is what new files in a folder start with: old, or what the folder
// itself gives, with everything for gid.
func defaultACL(old, access safefs.ACL, gid int) safefs.ACL {
	if old == nil {
		for _, e := range access {
			switch e.Tag {
			case safefs.ACLOwner, safefs.ACLGroup, safefs.ACLOther:
				old = append(old, e)
			}
		}
	}
	return widen(old, 7, gid)
}

func widen(have safefs.ACL, perm uint16, gid int) safefs.ACL {
	mask := uint16(7)
	for _, e := range have {
		if e.Tag == safefs.ACLMask {
			mask = e.Perm
		}
	}
	effective := slices.Clone(have)
	for i, e := range effective {
		switch e.Tag {
		case safefs.ACLUser, safefs.ACLNamed:
			effective[i].Perm &= mask
		case safefs.ACLGroup:
			effective[i].Perm = e.Perm&mask | perm
		}
	}
	return effective.WithGroup(gid, perm)
}
