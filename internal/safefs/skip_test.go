package safefs

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestWalkLeavesOutWhatTheVisitorSkips(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"open/inner", "private/inner"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d, err := OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var seen []string
	err = d.Walk(t.Context(), func(e *Entry) error {
		rel, _ := filepath.Rel(root, e.Path())
		seen = append(seen, rel)
		if e.Name == "private" {
			return fs.SkipDir
		}
		return nil
	})
	slices.Sort(seen)
	if err != nil || !slices.Equal(seen, []string{"open", "open/inner", "private"}) {
		t.Errorf("saw %q, %v", seen, err)
	}
}
