package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// owner is an account or group by name, for people, and by id, for the kernel.
type owner struct {
	name string
	id   int
}

func rootOwner() owner { return owner{"root", 0} }

func (r *run) serviceUser() owner  { return owner{r.roster.service.Name, int(r.roster.service.UID)} }
func (r *run) serviceGroup() owner { return owner{r.l.Product, int(r.roster.service.GID)} }

// folder is a folder as it is to be. Its text has "<slot>" for the slot's name.
type folder struct {
	path        string
	slot        string
	user, group owner
	mode        uint32
}

func (w folder) attr() safefs.Attr { return safefs.Exact(w.user.id, w.group.id, w.mode) }

func (w folder) String() string {
	return fmt.Sprintf("%s:%s %04o", w.generic(w.user.name), w.generic(w.group.name), w.mode)
}

// place is the path for people.
func (w folder) place() string {
	return path.Join(path.Dir(w.path), w.generic(path.Base(w.path)))
}

func (w folder) generic(name string) string {
	if w.slot != "" && name == w.slot {
		return "<slot>"
	}
	return name
}

// folders looks at each and makes or repairs those that differ. What is in them
// is nobody's business here: it is never entered (case B09).
func (r *run) folders(list []folder) (findings, error) {
	var f findings
	var todo []folder
	parents := opened{sys: r.sys}
	defer parents.close()
	for _, w := range list {
		what, err := r.compareFolder(&parents, w)
		if err != nil {
			return f, err
		}
		if what != "" {
			f.add(w.slot, "%s", what)
			todo = append(todo, w)
		}
	}
	f.apply = func(ctx context.Context) error { return r.makeFolders(ctx, todo) }
	return f, nil
}

func (r *run) compareFolder(parents *opened, w folder) (string, error) {
	dir, err := parents.dir(path.Dir(w.path))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("make %s %s", w.place(), w), nil
	}
	if err != nil {
		return "", err
	}
	n, st, listed, err := inspect(dir, path.Base(w.path))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("make %s %s", w.place(), w), nil
	}
	if err != nil {
		return "", err
	}
	defer n.Close()
	switch {
	case st.IsLink(): // it may lead to what users have
		return "", report.Coded(report.ExitState, "%s is a link and not a folder; it is left alone; next, on the host: look at it, then rm %s, and put the folder that it leads to in its place, where it is the right one", w.path, report.Quote(w.path))
	case !st.IsDir():
		return "", report.Coded(report.ExitState, "%s is a %s and not a folder; it is left alone; next, on the host: look at it, then %s", w.path, st.Kind(), aside(w.path, st))
	}
	switch {
	case w.attr().Diff(st) != "":
	case listed && !r.mayHaveACL(w.path):
		return fmt.Sprintf("take the ACL from %s (%s)", w.place(), w), nil
	default:
		return "", nil
	}
	return fmt.Sprintf("set %s to %s (mode %04o, %s)", w.place(), w, st.Perm(), handsOf(st, w.user, w.group)), nil
}

// inspect holds the file name in dir and says how it is; listed: somebody is
// named in one of its ACLs, or would be in those of new files.
func inspect(dir *safefs.Dir, name string) (n *safefs.Node, st safefs.Stat, listed bool, err error) {
	if n, err = dir.Open(name); err != nil {
		return nil, st, false, err
	}
	if st, err = n.Stat(); err == nil {
		for _, kind := range aclsOf(st) {
			acl, look := n.ACL(kind)
			listed, err = listed || acl != nil, errors.Join(err, look)
		}
	}
	if err != nil {
		n.Close()
	}
	return n, st, listed, err
}

// aclsOf are the lists that a file can have.
func aclsOf(st safefs.Stat) []safefs.ACLKind {
	switch {
	case st.IsDir():
		return []safefs.ACLKind{safefs.AccessACL, safefs.DefaultACL}
	case st.IsRegular():
		return []safefs.ACLKind{safefs.AccessACL}
	}
	return nil
}

// withoutACL takes every list away; the mode stays for Ensure to put right.
func withoutACL(n *safefs.Node) error {
	st, err := n.Stat()
	if err != nil {
		return err
	}
	for _, kind := range aclsOf(st) {
		if _, err := n.EnsureACL(kind, nil); err != nil {
			return err
		}
	}
	return nil
}

// mayHaveACL: whoever collects logs is let in by name. Everywhere else the modes
// say all.
func (r *run) mayHaveACL(p string) bool { return p == r.l.Logs() }

// aside is the command that makes room for what belongs at p.
func aside(p string, st safefs.Stat) string {
	if st.IsDir() || st.IsRegular() {
		return "mv " + report.Quote(p) + " " + report.Quote(p+".aside")
	}
	return "rm " + report.Quote(p)
}

// handsOf says what is wrong about the owners, without ids that differ by slot.
func handsOf(st safefs.Stat, user, group owner) string {
	switch {
	case st.UID != user.id && st.GID != group.id:
		return "another owner and group"
	case st.UID != user.id:
		return "another owner"
	case st.GID != group.id:
		return "another group"
	}
	return "owners right"
}

func (r *run) makeFolders(ctx context.Context, list []folder) error {
	parents := opened{sys: r.sys}
	defer parents.close()
	for _, w := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		dir, err := parents.dir(path.Dir(w.path))
		if err != nil {
			return err
		}
		if err := r.makeFolder(dir, w); err != nil {
			return err
		}
	}
	return nil
}

// makeFolder takes ACLs away before the mode comes: it would be their mask, and
// wake up what they give. A new folder may have got one from its parent.
func (r *run) makeFolder(dir *safefs.Dir, w folder) error {
	have, err := dir.Dir(path.Base(w.path))
	if err == nil && !r.mayHaveACL(w.path) {
		err = withoutACL(&have.Node)
	}
	if have != nil {
		have.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	made, diff, err := dir.EnsureDir(path.Base(w.path), w.attr())
	if err != nil {
		return err
	}
	defer made.Close()
	if diff == "created" {
		return withoutACL(&made.Node)
	}
	return nil
}

// opened keeps the folders of one pass open, since many slots share a parent.
type opened struct {
	sys  System
	dirs map[string]*safefs.Dir
}

func (o *opened) dir(p string) (*safefs.Dir, error) {
	if d := o.dirs[p]; d != nil {
		return d, nil
	}
	d, err := safefs.OpenDir(o.sys.at(p))
	if err != nil {
		return nil, err
	}
	if o.dirs == nil {
		o.dirs = map[string]*safefs.Dir{}
	}
	o.dirs[p] = d
	return d, nil
}

func (o *opened) close() {
	for _, d := range o.dirs {
		d.Close()
	}
}

// appFolders are the service's own.
func (r *run) appFolders(context.Context) (findings, error) {
	user, group := r.serviceUser(), r.serviceGroup()
	f, err := r.folders([]folder{
		{r.l.Releases(), "", user, group, 0o711},
		{r.l.Logs(), "", user, group, 0o750},
		{r.l.State(), "", user, group, 0o700},
	})
	if err != nil {
		return f, err
	}
	return f, r.closeFile(&f, "app-folders", r.l.EnvFile())
}

// closeFile adds a file of the service's that holds secrets to what a step puts
// right. Whether there is one is the platform's business.
func (r *run) closeFile(f *findings, check, p string) error {
	want := safefs.Exact(int(r.roster.service.UID), int(r.roster.service.GID), 0o600)
	dir, name, err := safefs.OpenParent(r.sys.at(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	st, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case !st.IsRegular() || st.Links > 1:
		f.notes = append(f.notes, report.Row{State: report.Warn, Check: check,
			Detail: fmt.Sprintf("%s is a %s with %d names; it is left alone", p, st.Kind(), st.Links)})
		return nil
	case want.Diff(st) == "":
		return nil
	}
	f.add("", "set %s to %s:%s 0600 (mode %04o, %s)", p, r.l.Product, r.l.Product, st.Perm(), handsOf(st, r.serviceUser(), r.serviceGroup()))
	apply := f.apply
	f.apply = func(ctx context.Context) error {
		if err := apply(ctx); err != nil {
			return err
		}
		return ensureRegular(r.sys.at(p), want)
	}
	return nil
}

// ensureRegular gives a regular file with one name its owner, group and mode.
func ensureRegular(abs string, want safefs.Attr) error {
	dir, name, err := safefs.OpenParent(abs)
	if err != nil {
		return err
	}
	defer dir.Close()
	n, err := dir.Open(name)
	if err != nil {
		return err
	}
	defer n.Close()
	st, err := n.Stat()
	if err != nil {
		return err
	}
	if !st.IsRegular() || st.Links > 1 {
		return report.Coded(report.ExitState, "%s is a %s with %d names; it is left alone", abs, st.Kind(), st.Links)
	}
	if err := withoutACL(n); err != nil {
		return err
	}
	_, err = n.Ensure(want)
	return err
}

// slotFolders are home, state and run of each slot, and what they stand in.
func (r *run) slotFolders(context.Context) (findings, error) {
	user, group := r.serviceUser(), r.serviceGroup()
	list := []folder{
		{r.l.SlotsRoot(), "", user, group, 0o711},
		{r.l.SlotHomes(), "", user, group, 0o711},
		{r.l.SlotStates(), "", user, group, 0o711},
		{r.l.SlotRuns(), "", user, group, 0o711},
		{path.Join(r.l.SlotRuns(), ".sessions"), "", user, group, 0o700},
	}
	for _, m := range r.roster.slots {
		slotUser, slotGroup := owner{m.name, int(m.uid)}, owner{m.name, int(m.gid)}
		list = append(list,
			folder{r.l.SlotHome(m.name), m.name, slotUser, slotGroup, 0o700},
			folder{r.l.SlotState(m.name), m.name, user, slotGroup, 0o2770},
			folder{r.l.SlotRun(m.name), m.name, user, slotGroup, 0o2770})
	}
	return r.folders(list)
}
