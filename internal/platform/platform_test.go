package platform

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func FuzzParseUsers(f *testing.F) {
	f.Add([]byte(`{"users":[{"id":"u1","disabled":true},{"id":"u2"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		ids, err := ParseUsers(data)
		if err != nil && (ids != nil || strings.ContainsAny(err.Error(), "\n\"")) {
			t.Fatalf("%q: %v, %v", data, ids, err)
		}
		for _, id := range ids {
			if id == "" {
				t.Fatalf("%q: an empty id", data)
			}
		}
	})
}

func TestUsersFileThatIsNoFileIsAnErrorAtOnce(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "users.json")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if ids, err := EnabledUsers(fifo); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%v, %v", ids, err)
	}
}

func TestV07RetiredTools(t *testing.T) {
	const tool = "old_tool"
	for name, c := range map[string]struct {
		file, content string
		found         bool
	}{
		"in a name":               {"bin/old_tool.py", "x", true},
		"in bytes":                {"bin/agent", "\x00\x7fELF old_tool\x00", true},
		"across a piece's border": {"bin/agent", strings.Repeat("x", 1<<20+2) + tool, true},
		"another":                 {"bin/agent", "old-tool oldtool", false},
		"empty":                   {"bin/agent", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, c.file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(c.content), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := Retired(context.Background(), dir, []string{"other_tool", tool})
			if err != nil || slices.Contains(got, tool) != c.found || slices.Contains(got, "other_tool") {
				t.Errorf("%q, %v; want found %v", got, err, c.found)
			}
		})
	}
}
