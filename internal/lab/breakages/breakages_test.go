package breakages

import (
	"strings"
	"testing"
)

func TestAllAreNamedAndTold(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 18 {
		t.Errorf("%d breakages; docs/slotcheck.md lists more", len(all))
	}
	names := map[string]bool{}
	for i, b := range all {
		if names[b.Name] {
			t.Errorf("%s is there twice", b.Name)
		}
		names[b.Name] = true
		if got, err := Find(b.Name); err != nil || got.Story != b.Story {
			t.Errorf("find %s: %+v, %v", b.Name, got, err)
		}
		if october := strings.HasPrefix(b.Story, "October 2026: "); october != (i < 4) {
			t.Errorf("%d %s: of October 2026: %v", i, b.Name, october)
		}
	}
	if _, err := Find("nothing"); err == nil {
		t.Error("found nothing")
	}
}

func TestParseRefusesAHeaderThatSaysTooLittle(t *testing.T) {
	for _, text := range []string{
		"", "# story: s\n# rows: r\n", "# story: s\n# rows: r\n# level: some\n", "# rows: r\n# level: full\n",
		"# story: s\n# level: full\n# rows:\n", "# tale: s\n# rows: r\n# level: full\n",
	} {
		if b, err := parse("scripts/01-x.sh", text); err == nil {
			t.Errorf("%q: %+v", text, b)
		}
	}
}
