package slots

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestParseTable(t *testing.T) {
	tab, err := ParseTable([]byte(`{"note":1,"slots":{"slot100":"u3","slot02":"u2","slot01":"u1"}}`), "slot")
	if err != nil {
		t.Fatal(err)
	}
	if got := tab.Slots(); !slices.Equal(got, []string{"slot01", "slot02", "slot100"}) {
		t.Errorf("Slots() = %v", got)
	}
	if tab.Slot("u2") != "slot02" || tab.User("slot01") != "u1" || tab.Slot("u9") != "" || tab.User("slot50") != "" {
		t.Error("wrong holder")
	}
	for name, text := range map[string]string{
		"another prefix": `{"slots":{"cf01":"u1"}}`,
		"no slot name":   `{"slots":{"slot01":"u1","x":"u2"}}`,
		"bad user":       `{"slots":{"slot01":"../u1"}}`,
		"empty user":     `{"slots":{"slot01":""}}`,
		"two slots":      `{"slots":{"slot01":"u1","slot02":"u1"}}`,
		"repeated slot":  `{"slots":{"slot01":"u1","slot01":"u2"}}`,
		"no slots":       `{}`,
		"another case":   `{"Slots":{"slot01":"u1"}}`,
		"null":           `{"slots":null}`,
		"a list":         `{"slots":[]}`,
		"a number":       `{"slots":{"slot01":1}}`,
		"nested":         `{"slots":{"slot01":{"slot02":"u1"}}}`,
		"not JSON":       `slots`,
		"empty":          ``,
		"two documents":  `{"slots":{}} {"slots":{}}`,
	} {
		if _, err := ParseTable([]byte(text), "slot"); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestT10Resolve(t *testing.T) {
	file := func(text string) func() (*Table, error) {
		p := filepath.Join(t.TempDir(), "slots.json")
		if text != "" {
			if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return func() (*Table, error) { return ReadTable(p, "slot") }
	}
	table := `{"slots":{"slot01":"u1"}}`
	denied := func() (*Table, error) { return nil, fs.ErrPermission }
	for _, c := range []struct {
		name, mode, user string
		read             func() (*Table, error)
		slot             string
		err              error
	}{
		{"off", "off", "u1", file(table), "", nil},
		{"anything else is off", "yes", "u1", denied, "", nil},
		{"on, held", "ON", "u1", file(table), "slot01", nil},
		{"on, not held", "on", "u2", file(table), "", ErrNoSlot},
		{"on, no table", "on", "u1", file(""), "", ErrNoSlot},
		{"optin, held", "OptIn", "u1", file(table), "slot01", nil},
		{"optin, not held", "optin", "u2", file(table), "", nil},
		{"optin, no table", "optin", "u1", file(""), "", nil},
		{"optin, unreadable", "optin", "u2", denied, "", ErrTable},
		{"optin, not JSON", "optin", "u2", file("x"), "", ErrTable},
		{"on, invalid", "on", "u1", file(`{"slots":{"slot01":"u1","zz":"u2"}}`), "", ErrTable},
	} {
		slot, err := Resolve(ParseMode(c.mode), c.user, c.read)
		if slot != c.slot || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", c.name, slot, err, c.slot, c.err)
		}
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add([]byte(`{"slots":{"slot01":"u1","slot02":"u2"}}`))
	f.Add([]byte(`{"slots":{"slot01":"u1","slot01":"u2"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tab, err := ParseTable(data, "slot")
		if err != nil {
			return
		}
		for _, slot := range tab.Slots() {
			if user := tab.User(slot); !ValidSlot("slot", slot) || !ValidUserID(user) || tab.Slot(user) != slot {
				t.Fatalf("accepted %q", data)
			}
		}
	})
}
