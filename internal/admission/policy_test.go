package admission

import (
	"errors"
	"strings"
	"testing"
)

// The expectations follow Vault's documented priority matching.
func TestPolicyReadOnDataPath(t *testing.T) {
	const path = "secret/data/shared/NAME"
	tests := []struct {
		name     string
		policies []string
		want     bool
	}{
		{"nothing", nil, false},
		{"exact", []string{`path "secret/data/shared/NAME" { capabilities = ["read"] }`}, true},
		{"leading slash", []string{`path "/secret/data/shared/NAME" { capabilities = ["read"] }`}, true},
		{"other capability", []string{`path "secret/data/shared/NAME" { capabilities = ["list"] }`}, false},
		{"metadata is not data", []string{`path "secret/metadata/shared/*" { capabilities = ["read"] }`}, false},
		{"without data, case B75", []string{`path "secret/shared/*" { capabilities = ["read"] }`}, false},
		{"glob", []string{`path "secret/data/shared/*" { capabilities = ["read", "list"] }`}, true},
		{"glob inside a segment", []string{`path "secret/data/sha*" { capabilities = ["read"] }`}, true},
		{"segment wildcard", []string{`path "secret/data/+/NAME" { capabilities = ["read"] }`}, true},
		{"segment wildcard is one segment", []string{`path "secret/+/NAME" { capabilities = ["read"] }`}, false},
		{"segment and glob", []string{`path "secret/+/shared/N*" { capabilities = ["read"] }`}, true},
		{"plus inside a word is no wildcard", []string{`path "secret/data/sh+red/NAME" { capabilities = ["read"] }`}, false},
		{"exact deny beats a glob", []string{`path "secret/*" { capabilities = ["read"] }`, `path "secret/data/shared/NAME" { capabilities = ["deny"] }`}, false},
		{"exact read beats a glob's deny", []string{`path "secret/*" { capabilities = ["deny"] }`, `path "secret/data/shared/NAME" { capabilities = ["read"] }`}, true},
		{"the longer glob wins", []string{`path "secret/*" { capabilities = ["read"] }`, `path "secret/data/shared/*" { capabilities = ["list"] }`}, false},
		{"equal paths merge", []string{`path "secret/data/*" { capabilities = ["list"] }`, `path "secret/data/*" { capabilities = ["read"] }`}, true},
		{"equal paths, deny wins", []string{`path "secret/data/*" { capabilities = ["read"] }`, `path "secret/data/*" { capabilities = ["deny"] }`}, false},
		{"later wildcard wins", []string{`path "secret/+/shared/NAME" { capabilities = ["read"] }`, `path "secret/data/*" { capabilities = ["deny"] }`}, false},
		{"no glob beats a glob at the same place", []string{`path "secret/+/shared/NAME" { capabilities = ["read"] }`, `path "secret/+/shared/*" { capabilities = ["deny"] }`}, true},
		{"fewer wildcards win", []string{`path "secret/+/+/NAME" { capabilities = ["deny"] }`, `path "secret/+/shared/NAME" { capabilities = ["read"] }`}, true},
		{"old form", []string{`path "secret/data/*" { policy = "write" }`}, true},
		{"old deny", []string{`path "secret/data/*" { policy = "deny" capabilities = ["read"] }`}, false},
		{"JSON", []string{`{"path":{"secret/data/shared/*":{"capabilities":["read"]}}}`}, true},
		{"two blocks of one path", []string{"path \"secret/data/*\" { capabilities = [\"list\"] }\npath \"secret/data/*\" { capabilities = [\"read\"] }"}, true},
		{"parameters do not matter", []string{`path "secret/data/*" { capabilities = ["read"] allowed_parameters = { "*" = [] } min_wrapping_ttl = "1s" }`}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newACL()
			for _, p := range tt.policies {
				if err := a.add(p); err != nil {
					t.Fatalf("add %q: %v", p, err)
				}
			}
			if got := a.mayRead(path); got != tt.want {
				t.Errorf("mayRead(%q) = %v, want %v", path, got, tt.want)
			}
		})
	}
}

func TestPolicyThatGivesNoVerdict(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"templated", `path "secret/data/{{identity.entity.name}}/*" { capabilities = ["read"] }`, "templated"},
		{"broken", `path "secret/data/*" { capabilities = [`, "cannot be parsed"},
		{"unknown capability", `path "secret/data/*" { capabilities = ["raed"] }`, `unknown capability "raed"`},
		{"plus star", `path "secret/+*" { capabilities = ["read"] }`, "no pattern"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newACL()
			err := a.add(`path "x" { capabilities = ["read"] }` + "\n" + tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("add: %v, want an error with %q", err, tt.want)
			}
			if tt.name == "templated" && !errors.Is(err, errTemplated) {
				t.Errorf("a templated policy is not told apart: %v", err)
			}
			if a.mayRead("x") {
				t.Error("a policy that cannot be understood was added in part")
			}
		})
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add(`path "secret/data/*" { capabilities = ["read"] }`)
	f.Add(`{"path":{"a/+/b*":{"policy":"deny"}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		a := newACL()
		if a.add(text) == nil {
			a.mayRead("secret/data/shared/NAME")
		}
	})
}
