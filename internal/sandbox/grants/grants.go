package grants

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Places are the folders of a service that decide what is private; empty ones
// do not exist. All are absolute.
type Places struct {
	Docs          string // the docs root
	State         string // AGENTWORKS_STATE_ROOT
	SharedProfile string // AGENT_BROWSER_SHARED_PROFILE
	ProfileRoot   string // AGENT_BROWSER_PROFILE_ROOT
	ConfigHome    string // the service account's XDG_CONFIG_HOME or ~/.config
}

// PrivateRoots lists what no slot is ever granted: the browser profiles of all
// kinds, which hold logged-in sessions; the browsers' socket folders; the app's
// state, unless the docs root lies in it; and the service's credential store
// (cases G-01, G-05).
func (p Places) PrivateRoots() []string {
	profiles := []string{p.SharedProfile, p.ProfileRoot}
	var roots []string
	if p.ConfigHome != "" {
		profiles = append(profiles, path.Join(p.ConfigHome, "agentworks/browser-profile"))
		roots = append(roots, path.Join(p.ConfigHome, "agentworks/gog"))
	}
	for _, base := range profiles {
		if base == "" {
			continue
		}
		for _, suffix := range []string{"", "-users", "-workflows", "-projects"} {
			roots = append(roots, path.Clean(base)+suffix)
		}
	}
	roots = append(roots, "/tmp/.agent-browser")
	if p.Docs != "" {
		roots = append(roots, path.Join(p.Docs, "tmp/.agent-browser"))
	}
	if p.State != "" && !holds([]string{p.State}, p.Docs) {
		roots = append(roots, path.Clean(p.State))
	}
	return roots
}

// SessionPaths are the profile and the socket folder of one managed browser,
// which a command of the service account would be granted for its session. All
// of them lie in private roots; a slot's command asks for them only to have them
// dropped and told.
func (p Places) SessionPaths(session string) []string {
	base := p.SharedProfile
	if base == "" {
		base = path.Join(p.ConfigHome, "agentworks/browser-profile")
	}
	kind := "-projects"
	if strings.HasPrefix(session, "workflow-") {
		kind = "-workflows"
	}
	return []string{path.Join(path.Clean(base)+kind, session), path.Join("/tmp/.agent-browser/o", session)}
}

// Rules filter the grants of one slot.
type Rules struct {
	// Private roots: nothing inside is granted.
	Private []string
	// Roots are the folders in which every grant must lie: the docs root, the
	// slot's own home and state, and what an administrator assigned (case G-06).
	Roots []string
}

// Dropped is a grant that a slot does not get.
type Dropped struct {
	Path string
	Why  string
}

// String is a line for people: a path that no terminal shows truly is quoted.
func (d Dropped) String() string {
	name := d.Path
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		name = quoted
	}
	return name + " is not granted to a slot: " + d.Why
}

// Filter splits paths into the ones a slot may be granted, cleaned, and the
// others. It compares names as they are written and as links resolve, on both
// sides, so that no spelling gets past it (case G-03). It looks with the rights
// of the calling account; what that account cannot see is compared as written.
//
// A grant that contains a private root is kept as it is: Landlock cannot carve
// a folder out of another, and the private folder stays closed by its modes.
func (r Rules) Filter(paths []string) (kept []string, dropped []Dropped) {
	private, roots := bothNames(r.Private), bothNames(r.Roots)
	for _, p := range paths {
		clean := path.Clean(p)
		if why := refuse(p, clean, private, roots); why != "" {
			dropped = append(dropped, Dropped{p, why})
		} else if !slices.Contains(kept, clean) {
			kept = append(kept, clean)
		}
	}
	return kept, dropped
}

func refuse(p, clean string, private, roots []string) string {
	if !strings.HasPrefix(p, "/") || strings.Contains(p, "\x00") {
		return "not an absolute path"
	}
	// ".." behind a link leads elsewhere than the cleaned name says: take both.
	names := []string{clean}
	for _, spelled := range []string{p, clean} {
		real, err := resolve(spelled)
		if err != nil {
			return err.Error()
		}
		names = append(names, real)
	}
	for _, name := range names {
		if holds(private, name) {
			return "it belongs to the app alone"
		}
	}
	for _, real := range names[1:] {
		if !holds(roots, real) {
			return "it lies outside the folders that slots are given"
		}
	}
	return ""
}

// bothNames adds to each root the name that its links resolve to.
func bothNames(roots []string) []string {
	var names []string
	for _, root := range roots {
		names = append(names, path.Clean(root))
		if real, err := resolve(root); err == nil {
			names = append(names, real)
		}
	}
	return names
}

func holds(roots []string, p string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		root = path.Clean(root)
		return p == root || root == "/" || strings.HasPrefix(p, root+"/")
	})
}

// resolve follows the links of an absolute path as the kernel would. Unlike
// filepath.EvalSymlinks it goes on where nothing exists or nothing may be seen:
// a link to a name that does not exist yet is still a link.
func resolve(p string) (string, error) {
	rest := strings.Split(p, "/")
	at, links := "/", 0
	for len(rest) > 0 {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		if links++; links > 40 {
			return "", errors.New("it leads through too many links")
		}
		if path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, nil
}

// CheckSession says whether s can name a managed browser's session.
func CheckSession(s string) error {
	ok := len(s) > 0 && len(s) <= 128 && s[0] != '.' && s[0] != '-'
	for _, c := range []byte(s) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0)
	}
	if !ok {
		return fmt.Errorf("browser session %q is no session name", s)
	}
	return nil
}
