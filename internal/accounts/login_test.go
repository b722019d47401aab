package accounts

import (
	"slices"
	"strings"
	"testing"
)

func TestGroupsAndGuestsBeyondASlot(t *testing.T) {
	db, err := Load(t.Context(), scripted(t, map[string]string{
		"passwd": "vs:x:990:990::/:/x\nslot01:x:70001:70001::/:/x\nbob:x:1001:70001::/:/x\n",
		"group":  "vs:x:990:\nslot01:x:70001:vs,eve,slot01\nslotshared:x:70000:vs,slot01\nsudo:x:27:vs,slot01\nalias:x:70001:slot01\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range db.BeyondGroups("slot01", "slot01", "slotshared") {
		names = append(names, g.Name)
	}
	if got := strings.Join(names, " "); got != "sudo" {
		t.Errorf("slot01 is beyond its groups in %q", got)
	}
	if got := db.Guests("slot01", "slot01", "vs"); !slices.Equal(got, []string{"eve", "bob"}) {
		t.Errorf("guests of slot01: %q", got)
	}
	if got := db.Guests("slot99"); got != nil {
		t.Errorf("guests of no group: %q", got)
	}
}

func TestUnlockedSeesEveryWayIn(t *testing.T) {
	passwd := "locked:x:1:1:::\nhash:x:2:2:::\nempty:x:3:3:::\nshadowless:x:4:4:::\nopen::5:5:::\nold:!:6:6:::\nstar:x:7:7:::\nhash:!:8:8:::\n"
	shadow := "locked:!*:1::::::\nhash:$y$abc:1::::::\nempty::1::::::\nstar:*:1::::::\nopen:!:1::::::\nhash:!:1::::::\n"
	got := Unlocked([]byte(passwd), []byte(shadow))
	for _, name := range []string{"hash", "empty", "open"} {
		if !got[name] {
			t.Errorf("%s counts as locked", name)
		}
	}
	if len(got) != 3 {
		t.Errorf("%v", got)
	}
}
