package slotcheck

import (
	"strings"
	"testing"
)

func TestS07HiderLeavesNoUserID(t *testing.T) {
	h := newHider([]string{"u-secret-1", "u1", "u1.b", "user"})
	for in, want := range map[string]string{
		"/srv/vs/data/docs/_users/u-secret-1/Chats: denied": "/srv/vs/data/docs/_users/<user>/Chats: denied",
		"stat _users/u9: no":                      "stat _users/<user>: no",
		"u1 u1 u1.b,u-secret-1.":                  "<user> <user> <user>,<user>.",
		"user=u1":                                 "<user>=<user>",
		"u11 au1 u1-x":                            "u11 au1 u1-x",
		"/srv/vs/releases is not traversable":     "/srv/vs/releases is not traversable",
		`"/d/_users/u1" and '/d/_users/u1/Chats'`: `"/d/_users/<user>" and '/d/_users/<user>/Chats'`,
	} {
		if got := h.words(in); got != want {
			t.Errorf("words(%q) = %q, want %q", in, got, want)
		}
	}
	if got := (hider{}).words("x _users/u1"); got != "x _users/<user>" {
		t.Errorf("without ids: %q", got)
	}
}

func FuzzHider(f *testing.F) {
	f.Add("a u-secret-1 b", "x")
	f.Add("u-secret-1u-secret-1", "user")
	f.Fuzz(func(t *testing.T, text, id string) {
		got := newHider([]string{"u-secret-1", id}).words(text)
		for _, word := range strings.FieldsFunc(got, func(r rune) bool { return !idWord.MatchString(string(r)) }) {
			if word == "u-secret-1" {
				t.Fatalf("%q still holds the id: %q", text, got)
			}
		}
	})
}
