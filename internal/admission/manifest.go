package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"agentworks-deploy/internal/safefs"
)

// The two lists of a manifest's capabilities object.
const (
	fieldSecrets = "capabilities.selected_secrets"
	fieldGlobal  = "capabilities.selected_global_secret_names"
)

// Bounds of one manifest; the largest seen on hosts has a few KiB.
const (
	maxManifest = 1 << 20
	maxNames    = 1000 // of one list
)

// Bounds of one scan, far above what hosts hold: whoever may make folders must
// not be able to make the scan endless.
const (
	maxManifests  = 100_000
	maxSelections = 200_000
	maxNotes      = 1000
)

// projectRoots hold the folders that may hold a manifest, below the docs root
// and below every user's tree.
var projectRoots = [...]string{
	"Workflow", "Crew", "Relays",
	"Chats/Work/projects", "Chats/Code/projects", "Chats/Relays/projects", "Chats/Goals/projects", "Chats/Video Studio/projects",
}

var manifestNames = [...]string{"workflow.json", "product.json"}

// Folders below _users that are no user's.
const (
	usersFolder  = "_users"
	sharedOwner  = "_shared"
	systemOwner  = "_system_global_secrets"
	userRedacted = "<user>"
)

// Selection is one name that one manifest selects, and whether the host's own
// stores hold it.
type Selection struct {
	Manifest string `json:"manifest"` // its path as it may be printed
	Field    string `json:"field"`
	Name     string `json:"name"`
	Local    bool   `json:"local,omitempty"`  // in the project's own store: no grant needed
	Shared   bool   `json:"shared,omitempty"` // managed on the host, or in the agent's environment

	project string // the manifest's folder, relative to docs: may hold a user's id, so it never leaves the host
}

// walker reads manifests below one docs root. A link below it is no folder and
// no file: what a user planted leads nowhere.
type walker struct {
	selections []Selection
	notes      []string
	unnoted    int // beyond maxNotes
	manifests  int
	unread     int             // manifests beyond the scan's bounds
	users      map[string]bool // ids, which are shown as <user> wherever they name a folder
}

// warnf notes a WARN about one manifest, store or folder.
func (w *walker) warnf(format string, args ...any) {
	if len(w.notes) == maxNotes {
		w.unnoted++
		return
	}
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

// shown is a path as it may be printed.
func (w *walker) shown(parts ...string) string {
	steps := strings.Split(path.Join(parts...), "/")
	for i, step := range steps {
		if w.users[step] {
			steps[i] = userRedacted
		}
	}
	return printable(strings.Join(steps, "/"))
}

// walk visits every manifest below docs. Only a docs root that cannot be
// opened, or a context that ends, is an error.
func (w *walker) walk(ctx context.Context, docs *safefs.Dir) error {
	w.users = map[string]bool{}
	var ids []string
	users, err := subfolder(docs, usersFolder)
	if err == nil {
		defer users.Close()
		ids, err = children(users)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.warnf("%s: %v", usersFolder, reason(err))
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == sharedOwner || id == systemOwner })
	for _, id := range ids {
		w.users[id] = true
	}
	if err := w.owner(ctx, docs, ""); err != nil {
		return err
	}
	for _, id := range ids {
		tree, err := subfolder(users, id)
		if err != nil {
			w.warnf("%s/%s: %v", usersFolder, userRedacted, reason(err))
			continue
		}
		err = w.owner(ctx, tree, path.Join(usersFolder, id))
		tree.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// owner visits the project roots below one tree; at is its path relative to
// docs.
func (w *walker) owner(ctx context.Context, tree *safefs.Dir, at string) error {
	for _, rel := range projectRoots {
		root, err := subfolder(tree, rel)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotFolder) {
			continue
		}
		if err == nil {
			err = w.projects(ctx, root, path.Join(at, rel))
			root.Close()
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if err != nil {
			w.warnf("%s: %v", w.shown(at, rel), reason(err))
		}
	}
	return nil
}

func (w *walker) projects(ctx context.Context, root *safefs.Dir, at string) error {
	names, err := children(root)
	if err != nil {
		return err
	}
	for _, name := range names {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		folder, err := subfolder(root, name)
		if err != nil {
			w.warnf("%s: %v", w.shown(at, name), reason(err))
			continue
		}
		for _, m := range manifestNames {
			w.manifest(folder, m, path.Join(at, name))
		}
		folder.Close()
	}
	return nil
}

// manifest reads one manifest, if there is one. Whatever is wrong with it is
// one WARN, and the scan goes on (case K-06).
func (w *walker) manifest(folder *safefs.Dir, name, project string) {
	if w.manifests == maxManifests || len(w.selections) >= maxSelections {
		if _, err := folder.Lstat(name); err == nil {
			w.unread++
		}
		return
	}
	data, err := readRegular(folder, name, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	w.manifests++
	shown := w.shown(project, name)
	var lists []nameList
	if err == nil {
		lists, err = parseManifest(data)
	}
	if err != nil {
		w.warnf("%s: %v", shown, reason(err))
		return
	}
	var odd []string
	for _, l := range lists {
		for _, n := range l.names {
			w.selections = append(w.selections, Selection{Manifest: shown, Field: l.field, Name: n, project: project})
		}
		odd = append(odd, l.odd...)
	}
	if len(odd) > 0 {
		w.warnf("%s: %s", shown, strings.Join(odd, "; "))
	}
}

// nameList is one list of a manifest: the names it selects, each once, and what
// is odd about it.
type nameList struct {
	field string
	names []string
	odd   []string
}

// parseManifest finds the lists of one manifest. Objects and lists of another
// shape select nothing (case K-06); only what is no JSON object is an error.
func parseManifest(data []byte) ([]nameList, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("the file is empty: 0 secrets declared")
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
			return nil, fmt.Errorf("no JSON at line %d: %w", line, err)
		}
		return nil, errors.New("no JSON object")
	}
	var caps map[string]json.RawMessage
	if json.Unmarshal(top["capabilities"], &caps) != nil {
		return nil, nil
	}
	var lists []nameList
	for _, field := range [...]string{fieldSecrets, fieldGlobal} {
		var items []json.RawMessage
		if json.Unmarshal(caps[strings.TrimPrefix(field, "capabilities.")], &items) != nil {
			continue
		}
		lists = append(lists, names(field, items))
	}
	return lists, nil
}

// names picks the names out of a list's items.
func names(field string, items []json.RawMessage) nameList {
	l := nameList{field: field}
	seen := map[string]bool{}
	stripped, bad, why := 0, 0, ""
	for i, item := range items {
		var name string
		if len(item) == 0 || item[0] != '"' || json.Unmarshal(item, &name) != nil {
			continue
		}
		if len(l.names) == maxNames {
			l.odd = append(l.odd, fmt.Sprintf("%s has more than %d names; the last %d are not checked", field, maxNames, len(items)-i))
			break
		}
		clean, had := strings.CutSuffix(name, "\r")
		if had {
			stripped++
		}
		if err := checkName(clean); err != nil {
			if bad++; bad == 1 {
				why = fmt.Sprintf("%s names %s, which is no secret's name: %v", field, printable(clean), err)
			}
			continue
		}
		if !seen[clean] {
			seen[clean] = true
			l.names = append(l.names, clean)
		}
	}
	if bad > 1 {
		why += fmt.Sprintf(" (and %d more)", bad-1)
	}
	if bad > 0 {
		l.odd = append(l.odd, why)
	}
	if stripped > 0 {
		l.odd = append(l.odd, fmt.Sprintf("%d name(s) of %s end in a carriage return, which is ignored", stripped, field))
	}
	return l
}

// checkName refuses what can be no KV path below a prefix.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("it is empty")
	case len(name) > 512:
		return errors.New("it is longer than 512 bytes")
	case !utf8.ValidString(name), strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("it holds control bytes")
	case path.Clean("/"+name) != "/"+name:
		return errors.New("it is no clean path")
	}
	return nil
}
