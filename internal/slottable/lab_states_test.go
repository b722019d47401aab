package slottable

import (
	"strings"
	"testing"
)

// A table that was written by hand named a slot without an account: every verb
// named another one as the way out.
func TestLabHoldersThatNoSlotIsThereFor(t *testing.T) {
	h := sharedLab(t)
	h.Sh(`echo '{"slots":{"slot01":"u1","slot99":"u2","slot00":"u3"}}' > /etc/agentworks/slots.json
		groupadd gone; mkdir -p /srv/vs/data/docs/_users/u2; chgrp gone /srv/vs/data/docs/_users/u2; chmod 2770 /srv/vs/data/docs/_users/u2; groupdel gone`)
	h.Must("slots", "assign", "box", "u1")
	h.fails(1, "next: agentworks-deploy slots release box <user>", "provision", "box")
	out, _, code := h.Call("slots", "status", "box")
	for _, words := range []string{"slot99  u2", "slot00  u3", "fix: agentworks-deploy slots release box u2", "fix: agentworks-deploy slots release box u3"} {
		if code != 1 || !strings.Contains(out, words) {
			t.Errorf("exit %d, no %q in\n%s", code, words, out)
		}
	}
	h.Must("slots", "release", "box", "u2")
	h.Must("slots", "release", "box", "u3")
	if got := h.Sh("stat -c %U:%G /srv/vs/data/docs/_users/u2"); got != "vs:vs" {
		t.Error(got)
	}
	h.Must("slots", "status", "box")
	h.Must("provision", "box")
}

// The table is lost; provisioning began it anew and everybody's slot was free.
func TestLabATableThatIsGoneIsRebuilt(t *testing.T) {
	h := sharedLab(t)
	h.Must("slots", "assign", "box", "u1", "slot07")
	h.Sh("rm /etc/agentworks/slots.json")
	h.fails(1, "next: agentworks-deploy slots rebuild box", "provision", "box")
	h.Must("slots", "rebuild", "box")
	h.Must("provision", "box")
	if got := h.Sh("cat /etc/agentworks/slots.json"); !strings.Contains(got, `"slot07": "u1"`) {
		t.Error(got)
	}
	// Overlayfs counts attributes that it does not list.
	h.Sh("chattr +i /etc/agentworks/slots.json")
	h.fails(1, "next, on the host: chattr -i -a /etc/agentworks/slots.json, and the same again", "slots", "assign", "box", "u2")
	h.Sh("chattr -i -a /etc/agentworks/slots.json")
	h.Must("slots", "assign", "box", "u2")
}

func TestLabStatusSaysWhoHasNoSlot(t *testing.T) {
	h := sharedLab(t)
	h.Must("slots", "assign", "box", "u1")
	if out := h.Must("slots", "status", "box"); !strings.Contains(out, "1 account is enabled and without a slot: u2;") {
		t.Error(out)
	}
	if out := h.Must("slots", "assign", "box", "u3x", "--plan"); !strings.Contains(out, "u3x is no enabled account of /srv/vs/data/docs/config/users.json") {
		t.Error(out)
	}
}
