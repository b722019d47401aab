package release

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// markerName is the in-progress marker in a release's top folder; it counts
// while younger than markerLife (case R-04).
const markerName = ".deploying"

// logsLink is the one link of a release that may leave it: to the host's
// persistent log folder <app>/logs, seen from <app>/releases/<id>.
const (
	logsLink   = "logs"
	logsTarget = "../../logs"
)

// names collects the entries of one release and refuses every path that could
// mean two things, leave the release, or collide with another.
type names struct {
	kinds map[string]byte // f file, l link, d folder that something lies in
}

func newNames() *names { return &names{kinds: map[string]byte{}} }

func (n *names) addFile(p string) error { return n.add(p, 'f') }

func (n *names) addLink(p, target string) error {
	if err := n.add(p, 'l'); err != nil {
		return err
	}
	if p == logsLink {
		if target != logsTarget {
			return fmt.Errorf("%s: is the host's log folder in every release and can only be the link %s", p, logsTarget)
		}
		return nil
	}
	return checkTarget(p, target)
}

// addFolder takes a folder's own entry, which may come after what lies in it and
// more than once.
func (n *names) addFolder(p string) error { return n.add(p, 'd') }

func (n *names) add(p string, kind byte) error {
	if err := checkPath(p); err != nil {
		return err
	}
	if p == manifestName || p == markerName {
		return fmt.Errorf("%s: this name is the deploy's own", p)
	}
	if p == logsLink && kind == 'f' || strings.HasPrefix(p, logsLink+"/") {
		return fmt.Errorf("%s: is the host's log folder in every release and can only be the link %s", logsLink, logsTarget)
	}
	if k, ok := n.kinds[p]; ok && (k != 'd' || kind != 'd') {
		return fmt.Errorf("%s: stands twice in the release", p)
	}
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if k, ok := n.kinds[dir]; ok && k != 'd' {
			return fmt.Errorf("%s: %s is not a folder", p, dir)
		}
		n.kinds[dir] = 'd'
	}
	n.kinds[p] = kind
	return nil
}

// checkPath accepts slash paths that have one spelling, stay below the release
// and survive JSON and a terminal.
func checkPath(p string) error {
	switch {
	case p == "" || p == ".":
		return errors.New("an empty path")
	case len(p) > 4000:
		return fmt.Errorf("%.60q…: path too long", p)
	case !utf8.ValidString(p):
		return fmt.Errorf("%q: not UTF-8", p)
	case strings.ContainsFunc(p, unicode.IsControl):
		return fmt.Errorf("%q: control bytes in a name", p)
	case path.IsAbs(p), path.Clean(p) != p, p == "..", strings.HasPrefix(p, "../"):
		return fmt.Errorf("%q: not a plain path inside the release", p)
	}
	for _, c := range strings.Split(p, "/") {
		if len(c) > 255 {
			return fmt.Errorf("%.60q…: a name longer than 255 bytes", p)
		}
	}
	return nil
}

// checkTarget accepts relative targets that stay inside the release. ".." may
// stand only at the front: after a name, which may itself be a link, it would
// climb from a place that the text does not show.
func checkTarget(p, target string) error {
	switch {
	case target == "" || len(target) > 4000:
		return fmt.Errorf("%s: link with an empty or overlong target", p)
	case !utf8.ValidString(target) || strings.ContainsFunc(target, unicode.IsControl):
		return fmt.Errorf("%s: link with a target of control bytes", p)
	case path.IsAbs(target):
		return fmt.Errorf("%s: link to the absolute path %q; a release holds relative links only", p, target)
	}
	depth := strings.Count(p, "/")
	climbing := true
	for _, c := range strings.Split(strings.TrimSuffix(target, "/"), "/") {
		switch {
		case c == "" || c == ".":
		case c == ".." && climbing:
			depth--
		case c == "..":
			return fmt.Errorf("%s: link to %q, which climbs after a name", p, target)
		default:
			climbing = false
		}
	}
	if depth < 0 {
		return fmt.Errorf("%s: link to %q leaves the release", p, target)
	}
	return nil
}
