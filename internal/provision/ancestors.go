package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

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
			f.notes = append(f.notes, writable("ancestors", p, st)...)
		case systemFolder(p):
			f.notes = append(f.notes, report.Row{State: report.Warn, Check: "ancestors",
				Detail: fmt.Sprintf("%s is not searchable for slots (mode %04o); it is the system's, so it stays as it is", p, st.Perm()),
				Fix:    &report.Fix{Where: report.OnHost, Argv: []string{"chmod", "o+x", p}}})
		default:
			f.add("", "add o+x to %s (mode %04o)", p, st.Perm())
			f.notes = append(f.notes, writable("ancestors", p, st)...)
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

// writable warns of a folder that is not ours and in which anybody can replace
// what is: the sticky bit alone keeps them from it.
func writable(check, p string, st safefs.Stat) []report.Row {
	if st.Perm()&0o002 == 0 || st.Perm()&0o1000 != 0 {
		return nil
	}
	return []report.Row{{State: report.Warn, Check: check,
		Detail: fmt.Sprintf("everybody may write to %s (mode %04o), and so put something else in the place of what it holds", p, st.Perm()),
		Fix:    &report.Fix{Where: report.OnHost, Argv: []string{"chmod", "o-w", p}}}}
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
