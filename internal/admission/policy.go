package admission

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl"
	"github.com/hashicorp/hcl/hcl/ast"
)

// errTemplated says that a policy's paths depend on who asks, so that no
// statement about a group can be made from its text.
var errTemplated = errors.New("it is templated")

// acl is the union of policies as Vault evaluates it: the capabilities of each
// distinct path pattern. The rules of choice are those of Vault's policy
// documentation, "Priority matching".
type acl struct {
	exact    map[string]capabilities
	patterns map[string]capabilities // with "+" segments or a final "*"
}

// capabilities of one path; deny silences all others.
type capabilities struct {
	read, deny bool
}

func (c capabilities) merge(o capabilities) capabilities {
	return capabilities{read: c.read || o.read, deny: c.deny || o.deny}
}

func newACL() *acl {
	return &acl{exact: map[string]capabilities{}, patterns: map[string]capabilities{}}
}

// add parses one policy (HCL v1 or its JSON form) and merges it in. Nothing is
// added when any part of it cannot be understood.
func (a *acl) add(text string) error {
	paths, err := parsePolicy(text)
	if err != nil {
		return err
	}
	for _, p := range paths {
		into := a.exact
		if strings.HasSuffix(p.path, "*") || hasWildcardSegment(p.path) {
			into = a.patterns
		}
		into[p.path] = into[p.path].merge(p.capabilities)
	}
	return nil
}

// mayRead reports whether the union gives read on an API path without leading
// slash, such as "secret/data/shared/NAME".
func (a *acl) mayRead(path string) bool {
	if c, ok := a.exact[path]; ok {
		return c.read && !c.deny
	}
	best, found := "", false
	for p := range a.patterns {
		if matches(p, path) && (!found || outranks(p, best)) {
			best, found = p, true
		}
	}
	c := a.patterns[best]
	return found && c.read && !c.deny
}

func hasWildcardSegment(pattern string) bool {
	return pattern == "+" || strings.HasPrefix(pattern, "+/") || strings.Contains(pattern, "/+")
}

// matches: "+" stands for exactly one segment, a final "*" for any rest.
func matches(pattern, path string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	want, have := strings.Split(prefix, "/"), strings.Split(path, "/")
	if len(have) < len(want) || !open && len(have) != len(want) {
		return false
	}
	for i, w := range want {
		last := open && i == len(want)-1
		switch {
		case w == "+" || w == have[i]:
		case last && strings.HasPrefix(have[i], w):
		default:
			return false
		}
	}
	return true
}

// outranks orders two patterns that match one path: a later first wildcard
// wins, then the one without a final "*", then fewer "+" segments, then the
// longer, then the lexicographically larger.
func outranks(p, q string) bool {
	if i, j := firstWildcard(p), firstWildcard(q); i != j {
		return i > j
	}
	if i, j := strings.HasSuffix(p, "*"), strings.HasSuffix(q, "*"); i != j {
		return j
	}
	if i, j := wildcardSegments(p), wildcardSegments(q); i != j {
		return i < j
	}
	if len(p) != len(q) {
		return len(p) > len(q)
	}
	return p > q
}

// firstWildcard is where Vault sees the first wildcard: in a pattern with "+"
// segments the first "+", even one that is part of a word.
func firstWildcard(pattern string) int {
	if hasWildcardSegment(pattern) {
		return strings.IndexByte(pattern, '+')
	}
	return len(pattern) - 1
}

func wildcardSegments(pattern string) (n int) {
	for seg := range strings.SplitSeq(pattern, "/") {
		if seg == "+" {
			n++
		}
	}
	return n
}

type policyPath struct {
	path string
	capabilities
}

// oldPolicies are the words of the deprecated `policy = "…"` form.
var oldPolicies = map[string]capabilities{
	"deny": {deny: true}, "read": {read: true}, "write": {read: true}, "sudo": {read: true},
}

// parsePolicy reads the `path` blocks of a policy. Everything else in it
// (wrapping times, parameters) has no say in whether a path may be read.
func parsePolicy(text string) (paths []policyPath, err error) {
	root, err := hcl.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("it cannot be parsed: %w", err)
	}
	list, ok := root.Node.(*ast.ObjectList)
	if !ok {
		return nil, errors.New("it has no object at its root")
	}
	for _, item := range list.Filter("path").Items {
		if len(item.Keys) != 1 {
			return nil, errors.New("a path block has no single path")
		}
		key, ok := item.Keys[0].Token.Value().(string)
		if !ok {
			return nil, errors.New("a path is no string")
		}
		if strings.Contains(key, "{{") {
			return nil, errTemplated
		}
		if strings.Contains(key, "+*") {
			return nil, fmt.Errorf("path %q: \"+*\" is no pattern", key)
		}
		c, err := blockCapabilities(item.Val)
		if err != nil {
			return nil, fmt.Errorf("path %q: %w", key, err)
		}
		paths = append(paths, policyPath{strings.TrimPrefix(key, "/"), c})
	}
	return paths, nil
}

func blockCapabilities(val ast.Node) (capabilities, error) {
	var block struct {
		Policy       string   `hcl:"policy"`
		Capabilities []string `hcl:"capabilities"`
	}
	if err := hcl.DecodeObject(&block, val); err != nil {
		return capabilities{}, err
	}
	c, known := oldPolicies[block.Policy]
	if block.Policy != "" && !known {
		return capabilities{}, fmt.Errorf("unknown policy %q", block.Policy)
	}
	for _, word := range block.Capabilities {
		switch word {
		case "deny":
			c.deny = true
		case "read":
			c.read = true
		case "create", "update", "delete", "list", "sudo", "patch", "subscribe", "recover":
		default:
			return capabilities{}, fmt.Errorf("unknown capability %q", word)
		}
	}
	return c, nil
}
