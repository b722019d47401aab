package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// docs makes the docs folder where it is missing, and closes what is private in
// it before the first slot is assigned (case P-08).
func (r *run) docs(ctx context.Context) (findings, error) {
	f, err := r.folders(r.docsFolders())
	if err != nil {
		return f, err
	}
	apply := f.apply
	t := &trees{run: r}
	if err := t.each(ctx); err != nil {
		return f, err
	}
	if t.open > 0 { // user ids are nobody's business: a count is enough
		f.add("", "close %d users' trees in %s to others", t.open, r.l.Users())
	}
	if t.armed > 0 {
		f.add("", "take setuid and setgid from %d files in %s", t.armed, r.l.Users())
	}
	if t.links > 0 {
		f.notes = append(f.notes, report.Row{State: report.Warn, Check: "docs",
			Detail: fmt.Sprintf("%d links in %s are left alone: root follows none there, and no slot gets such a tree", t.links, r.l.Users())})
	}
	if t.mounts > 0 {
		f.notes = append(f.notes, report.Row{State: report.Warn, Check: "docs",
			Detail: fmt.Sprintf("%d mounts in %s are left alone: no slot gets such a tree; to see them, on the host: findmnt -R", t.mounts, r.l.Users())})
	}
	f.apply = func(ctx context.Context) error {
		if err := apply(ctx); err != nil {
			return err
		}
		return (&trees{run: r, apply: true}).each(ctx)
	}
	return f, r.closeFile(&f, "docs", r.l.UsersFile())
}

// docsFolders: a docs folder that is there keeps its owner and mode. One that is
// missing is made with what it stands in, the service's below the app folder,
// else root's (case B12).
func (r *run) docsFolders() []folder {
	user, group := r.serviceUser(), r.serviceGroup()
	var list []folder
	for _, p := range ancestry(r.l.Docs) {
		if dir, err := safefs.OpenDir(r.sys.at(p)); !errors.Is(err, fs.ErrNotExist) {
			if err == nil {
				dir.Close()
			}
			continue
		}
		if p == r.l.Docs || within(r.l.App, p) {
			list = append(list, folder{p, "", user, group, 0o711})
		} else {
			list = append(list, folder{p, "", rootOwner(), rootOwner(), 0o755})
		}
	}
	return append(list,
		folder{r.l.Users(), "", user, group, 0o711},
		folder{r.l.DocsConfig(), "", user, group, 0o700})
}

// within says whether p is root or lies below it.
func within(root, p string) bool {
	return p == root || len(p) > len(root) && p[:len(root)] == root && p[len(root)] == '/'
}

// closed takes every bit for others away.
func closed() safefs.Attr { return safefs.Attr{UID: -1, GID: -1, Clear: 0o007} }

// trees goes through the users' trees: it closes each to others, and takes
// setuid and setgid from the files in it. Everything else about them is the slot
// verbs' business.
type trees struct {
	*run
	apply bool

	open, armed, links, mounts int
}

func (t *trees) each(ctx context.Context) error {
	users, err := safefs.OpenDir(t.sys.at(t.l.Users()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer users.Close()
	names, err := users.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		dir, err := users.Own(name)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			continue
		case errors.Is(err, unix.ELOOP):
			t.links++
			continue
		case errors.Is(err, unix.EXDEV):
			t.mounts++
			continue
		case err != nil:
			return err
		}
		err = t.tree(ctx, dir)
		dir.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *trees) tree(ctx context.Context, dir *safefs.Dir) error {
	st, err := dir.Stat()
	if err != nil {
		return err
	}
	if closed().Diff(st) != "" {
		t.open++
		if t.apply {
			if _, err := dir.Ensure(closed()); err != nil {
				return err
			}
		}
	}
	return dir.Walk(ctx, func(e *safefs.Entry) error {
		if t.disarmed(e.Stat).Diff(e.Stat) == "" {
			return nil
		}
		t.armed++
		if !t.apply {
			return nil
		}
		_, err := e.Ensure(t.disarmed)
		if errors.Is(err, unix.EXDEV) { // a file that something is mounted on
			return nil
		}
		return err
	})
}

// disarmed takes setuid and setgid away. A file with several names may be
// anybody's, so then only from what belongs to a slot or the service.
func (r *run) disarmed(st safefs.Stat) safefs.Attr {
	if st.Links > 1 && st.UID != int(r.roster.service.UID) && !slices.ContainsFunc(r.roster.everySlot(), func(m member) bool { return int(m.uid) == st.UID }) {
		return safefs.Keep()
	}
	return safefs.Disarmed(st)
}
