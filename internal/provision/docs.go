package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// docs makes the docs folder where it is missing, and closes what is private in
// it before the first slot is assigned (case P-08).
func (r *run) docs(context.Context) (findings, error) {
	f, err := r.folders(r.docsFolders())
	if err != nil {
		return f, err
	}
	trees, links, err := r.openTrees()
	if err != nil {
		return f, err
	}
	if len(trees) > 0 { // user ids are nobody's business: a count is enough
		f.add("", "close %d users' trees in %s to others", len(trees), r.l.Users())
	}
	if links > 0 {
		f.notes = append(f.notes, report.Row{State: report.Warn, Check: "docs",
			Detail: fmt.Sprintf("%d links in %s are left alone: root follows none there, and no slot gets such a tree", links, r.l.Users())})
	}
	folders := f.apply
	f.apply = func(ctx context.Context) error {
		if err := folders(ctx); err != nil {
			return err
		}
		return r.closeTrees(ctx, trees)
	}
	return f, nil
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

// openTrees lists users' trees that others may enter, and counts the links that
// stand where a tree should. The trees themselves are given to their slots by
// the slot verbs.
func (r *run) openTrees() (open []string, links int, err error) {
	users, err := safefs.OpenDir(r.sys.at(r.l.Users()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer users.Close()
	names, err := users.Names()
	if err != nil {
		return nil, 0, err
	}
	for _, name := range names {
		st, err := users.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, 0, err
		case st.IsLink():
			links++
		case st.IsDir() && closed().Diff(st) != "":
			open = append(open, name)
		}
	}
	return open, links, nil
}

func (r *run) closeTrees(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	users, err := safefs.OpenDir(r.sys.at(r.l.Users()))
	if err != nil {
		return err
	}
	defer users.Close()
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		tree, err := users.Dir(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = tree.Ensure(closed())
		tree.Close()
		if err != nil {
			return err
		}
	}
	return nil
}
