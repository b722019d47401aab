package vaulttest

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl"
)

// allowed enforces a token's policies the simple way: of the paths that match,
// an exact one, else the longest. No fixture's rights need more, and the
// verdicts under test never come from here.
func (s *Server) allowed(policies []string, path, op string) bool {
	caps := s.capabilitiesOn(policies, path)
	if op == "list" {
		caps = append(caps, s.capabilitiesOn(policies, path+"/")...)
	}
	return slices.Contains(caps, "root") || slices.Contains(caps, op) || op == "update" && slices.Contains(caps, "create")
}

func (s *Server) capabilitiesOn(policies []string, path string) []string {
	var caps []string
	best := -1
	for _, name := range policies {
		if name == "root" {
			return []string{"root"}
		}
		for at, granted := range rulesOf(s.policies[name]) {
			weight := len(at)
			prefix, open := strings.CutSuffix(at, "*")
			switch {
			case at == path:
				weight += 1 << 20
			case !open || !strings.HasPrefix(path, prefix):
				continue
			}
			switch {
			case weight > best:
				best, caps = weight, slices.Clone(granted)
			case weight == best:
				caps = append(caps, granted...)
			}
		}
	}
	if slices.Contains(caps, "deny") {
		return []string{"deny"}
	}
	slices.Sort(caps)
	return slices.Compact(caps)
}

// anyBelow is the preflight of sys/internal/ui/mounts: some right on the mount
// or below it.
func (s *Server) anyBelow(policies []string, mount string) bool {
	for _, name := range policies {
		if name == "root" {
			return true
		}
		for at, granted := range rulesOf(s.policies[name]) {
			if !slices.Contains(granted, "deny") && (strings.HasPrefix(at, mount+"/") || strings.HasSuffix(at, "*") && strings.HasPrefix(mount+"/", strings.TrimSuffix(at, "*"))) {
				return true
			}
		}
	}
	return false
}

func rulesOf(text string) map[string][]string {
	var doc struct {
		Path map[string]struct {
			Capabilities []string `hcl:"capabilities"`
		} `hcl:"path"`
	}
	if hcl.Decode(&doc, text) != nil {
		return nil
	}
	rules := map[string][]string{}
	for at, r := range doc.Path {
		rules[at] = r.Capabilities
	}
	return rules
}
