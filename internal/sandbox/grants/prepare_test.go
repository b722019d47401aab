package grants

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func mode(t *testing.T, p string) uint32 {
	t.Helper()
	st, err := os.Lstat(p)
	if err != nil {
		t.Fatal(err)
	}
	return st.Sys().(*syscall.Stat_t).Mode & 0o7777
}

func TestG08Prepare(t *testing.T) {
	docs := t.TempDir()
	mk := func(rel string, m uint32) string {
		t.Helper()
		p := filepath.Join(docs, rel)
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(p, 0, 76100); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Chmod(p, m); err != nil {
			t.Fatal(err)
		}
		return p
	}
	runs := mk("Workflow/wf1/runs", 0o700)
	step := mk("Workflow/wf1/runs/i1/execution/step", 0o2750)
	own := mk("Workflow/own", 0o755)
	if err := os.Chown(own, 70001, 70001); err != nil {
		t.Fatal(err)
	}
	users, config := mk("_users", 0o711), mk("config", 0o700)
	for _, p := range []string{users, config} {
		if err := os.Chown(p, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	tree := mk("_users/u1", 0o700)
	file := filepath.Join(docs, "Workflow/file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Chmod(docs, 0o711); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	if err := syscall.Chmod(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Prepare(docs, []string{docs, users, config, tree, step, own, file, step + "/absent/x", elsewhere, docs + "2"}); err != nil {
			t.Fatal(err)
		}
	}
	for p, want := range map[string]uint32{docs: 0o711, users: 0o711, config: 0o700, tree: 0o2770, runs: 0o710, step: 0o2770, own: 0o755, file: 0o600, elsewhere: 0o700} {
		if got := mode(t, p); got != want {
			t.Errorf("%s is %04o, want %04o", p, got, want)
		}
	}

	// A link on the way, or at the end, refuses; its target stays as it is.
	if err := os.Symlink(elsewhere, filepath.Join(docs, "Workflow/link")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"Workflow/link", "Workflow/link/sub"} {
		if err := Prepare(docs, []string{filepath.Join(docs, p)}); err == nil || !strings.Contains(err.Error(), "is a link") {
			t.Errorf("%s: %v", p, err)
		}
	}
	if got := mode(t, elsewhere); got != 0o700 {
		t.Errorf("the link's target is %04o", got)
	}
}

// Without the folder's group the kernel takes setgid away (case P-11); this must
// not pass silently. Only an account without CAP_FSETID meets it.
func TestG08PrepareNeedsTheGroup(t *testing.T) {
	if os.Getenv("PREPARE_AS") != "" {
		err := Prepare(os.Getenv("PREPARE_AS"), []string{os.Getenv("PREPARE_AS") + "/x"})
		if err == nil || !strings.Contains(err.Error(), "not in its group") {
			t.Errorf("got %v", err)
		}
		return
	}
	docs, err := os.MkdirTemp("", "prepare-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(docs) })
	x := filepath.Join(docs, "x")
	for _, step := range []error{
		os.Chmod(docs, 0o755), os.Mkdir(x, 0o755), os.Chown(x, 76000, 76001), os.Chmod(x, 0o750|fs.ModeSetgid),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	runAs(t, 76000, "PREPARE_AS="+docs)
}
