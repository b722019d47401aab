package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

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
		what, err := compareFolder(&parents, w)
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

func compareFolder(parents *opened, w folder) (string, error) {
	dir, err := parents.dir(path.Dir(w.path))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("make %s %s", w.place(), w), nil
	}
	if err != nil {
		return "", err
	}
	st, err := dir.Lstat(path.Base(w.path))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("make %s %s", w.place(), w), nil
	}
	if err != nil {
		return "", err
	}
	if !st.IsDir() {
		return "", report.Coded(report.ExitState, "%s is a %s and not a folder; it is left alone; next, on the host: look at it, then %s", w.path, st.Kind(), aside(w.path, st))
	}
	if w.attr().Diff(st) == "" {
		return "", nil
	}
	return fmt.Sprintf("set %s to %s (mode %04o, %s)", w.place(), w, st.Perm(), handsOf(st, w.user, w.group)), nil
}

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
		made, _, err := dir.EnsureDir(path.Base(w.path), w.attr())
		if err != nil {
			return err
		}
		made.Close()
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

// ancestors adds o+x, and nothing else, on the app folder, the docs folder and
// what they stand in (case P-06).
func (r *run) ancestors(context.Context) (findings, error) {
	var f findings
	var todo []string
	x := safefs.Attr{UID: -1, GID: -1, Set: 0o001}
	for _, p := range ancestry(r.l.App, r.l.Docs, r.real.App, r.real.Docs) {
		dir, err := safefs.OpenDir(r.sys.at(p))
		if errors.Is(err, fs.ErrNotExist) {
			continue // made by the step "docs", searchable from the start
		}
		if err != nil {
			return f, err
		}
		st, err := dir.Stat()
		dir.Close()
		switch {
		case err != nil:
			return f, err
		case x.Diff(st) == "":
		case systemFolder(p):
			f.notes = append(f.notes, report.Row{State: report.Warn, Check: "ancestors",
				Detail: fmt.Sprintf("%s is not searchable for slots (mode %04o); it is the system's, so it stays as it is", p, st.Perm()),
				Fix:    &report.Fix{Where: report.OnHost, Argv: []string{"chmod", "o+x", p}}})
		default:
			f.add("", "add o+x to %s (mode %04o)", p, st.Perm())
			todo = append(todo, p)
		}
	}
	f.apply = func(context.Context) error {
		for _, p := range todo {
			dir, err := safefs.OpenDir(r.sys.at(p))
			if err != nil {
				return err
			}
			_, err = dir.Ensure(x)
			dir.Close()
			if err != nil {
				return err
			}
		}
		return nil
	}
	return f, nil
}

func systemFolder(p string) bool {
	switch p {
	case "/", "/srv", "/var", "/var/lib", "/data":
		return true
	}
	return false
}

// ancestry lists the paths and what they stand in, outermost first, each once.
func ancestry(paths ...string) []string {
	seen := map[string]bool{}
	var all []string
	for _, p := range paths {
		names := strings.Split(strings.Trim(p, "/"), "/")
		for i := range len(names) + 1 {
			if p := "/" + strings.Join(names[:i], "/"); !seen[p] {
				seen[p] = true
				all = append(all, p)
			}
		}
	}
	return all
}
