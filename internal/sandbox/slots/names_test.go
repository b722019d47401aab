package slots

import "testing"

func TestT03ValidSlot(t *testing.T) {
	for name, want := range map[string]bool{
		"slot01": true, "slot99": true, "slot100": true, "slot1": false, "slot": false,
		"cf01": false, "slot0x": false, "slot01 ": false, "Slot01": false, "slotshared": false, "": false,
	} {
		if got := ValidSlot("slot", name); got != want {
			t.Errorf("ValidSlot(slot, %q) = %v, want %v", name, got, want)
		}
	}
}

func TestT03ValidUserID(t *testing.T) {
	long := make([]byte, 128)
	for i := range long {
		long[i] = 'a'
	}
	for id, want := range map[string]bool{
		"u1": true, "aa73da63e26b40a1bb701c2b4c024870": true, "a.b-c_d": true, "_x": true, string(long): true,
		"": false, ".": false, "..": false, ".x": false, "-x": false, "u1;id": false, "u/1": false, "u1\n": false,
		"_shared": false, "_system_global_secrets": false, string(long) + "a": false,
	} {
		if got := ValidUserID(id); got != want {
			t.Errorf("ValidUserID(%q) = %v, want %v", id, got, want)
		}
	}
}

func TestB05ValidPrefix(t *testing.T) {
	for p, want := range map[string]bool{"slot": true, "cf": true, "a1": true, "0day": false, "": false, "Slot": false, "a-b": false, "abcdefghijklmnopq": false} {
		if got := ValidPrefix(p); got != want {
			t.Errorf("ValidPrefix(%q) = %v, want %v", p, got, want)
		}
	}
}
