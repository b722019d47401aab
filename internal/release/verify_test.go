package release

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type difference struct {
	make func(t *testing.T, dir string)
	want string
}

// differences are the ways in which a copy can differ from its manifest.
func differences() map[string]difference {
	page := func(dir string) string { return filepath.Join(dir, "frontend/index.html") }
	return map[string]difference{
		"a flipped byte": {func(t *testing.T, dir string) {
			b, err := os.ReadFile(page(dir))
			must(t, err)
			b[0] ^= 1
			must(t, os.WriteFile(page(dir), b, 0o644))
		}, "other bytes"},
		"a longer file": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(page(dir), []byte("much longer than before"), 0o644))
		}, "bytes, the manifest says"},
		"a deleted file": {func(t *testing.T, dir string) { must(t, os.Remove(page(dir))) }, "not there"},
		"an added file": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "frontend/x.pyc"), nil, 0o644))
		}, "not listed"},
		"a changed link": {func(t *testing.T, dir string) {
			link := filepath.Join(dir, "frontend/home.html")
			must(t, os.Remove(link))
			must(t, os.Symlink("other.html", link))
		}, "frontend/home.html"},
		"a dropped exec bit": {func(t *testing.T, dir string) { must(t, os.Chmod(filepath.Join(dir, "bin/vs-agent"), 0o644)) }, "mode 0644"},
		"an added exec bit":  {func(t *testing.T, dir string) { must(t, os.Chmod(page(dir), 0o755)) }, "mode 0755"},
		"an added link":      {func(t *testing.T, dir string) { must(t, os.Symlink("empty", filepath.Join(dir, "extra"))) }, "not listed"},
		"a removed link":     {func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "frontend/home.html"))) }, "frontend/home.html"},
		"another manifest": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, manifestName), []byte("{}"), 0o644))
		}, "manifest"},
	}
}

func TestR09VerifyFindsEveryDifference(t *testing.T) {
	b := variant(t, "verified")
	for name, c := range differences() {
		t.Run(name, func(t *testing.T) {
			s := testStore(t)
			install(t, s, b)
			dir := s.dir(b.m.ID)
			must(t, verify(context.Background(), dir, b.m, b.manifest))
			c.make(t, dir)
			if err := verify(context.Background(), dir, b.m, b.manifest); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
		})
	}
	t.Run("kinds", func(t *testing.T) {
		s := testStore(t)
		install(t, s, b)
		dir := s.dir(b.m.ID)
		must(t, os.Remove(filepath.Join(dir, "empty")))
		must(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
		if err := verify(context.Background(), dir, b.m, b.manifest); err == nil || !strings.Contains(err.Error(), "is a folder") {
			t.Fatal(err)
		}
	})
}

func TestR09ReleaseOfAnotherMachineIsRefused(t *testing.T) {
	m := *variant(t, "x").m
	m.Glibc = "2.36"
	for name, c := range map[string]struct{ product, arch, glibc, want string }{
		"fits":            {"vs", "amd64", "2.36", ""},
		"newer host":      {"vs", "amd64", "2.41", ""},
		"other arch":      {"vs", "arm64", "2.36", "built for amd64"},
		"older glibc":     {"vs", "amd64", "2.9", "needs glibc 2.36"},
		"no glibc":        {"vs", "amd64", "", "no glibc"},
		"another product": {"cf", "amd64", "2.36", "product vs"},
	} {
		err := m.checkHost(c.product, c.arch, c.glibc)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestGlibcOfThisMachine(t *testing.T) {
	have, err := HostGlibc("/")
	must(t, err)
	if v, ok := version(have); !ok || v[0] != 2 {
		t.Fatalf("glibc %q", have)
	}
	f, err := os.Open("/bin/bash")
	must(t, err)
	defer f.Close()
	p, ok := readProgram(f)
	if !ok || p.glibc == "" || newer(p.glibc, have) {
		t.Fatalf("bash needs glibc %q, the machine has %q", p.glibc, have)
	}
	if none, err := HostGlibc(t.TempDir()); err != nil || none != "" {
		t.Errorf("an empty root has glibc %q, %v", none, err)
	}
}

func TestProgramsOfTwoArchitecturesAreRefused(t *testing.T) {
	files := sampleTree()
	files["bin/vs-agent"] = content{data: string(elfFile(183, "")), mode: 0o755}
	tr, err := ReadTree(context.Background(), tree(t, t.TempDir(), files), "it")
	must(t, err)
	must(t, tr.Complete(programs(t, "1")))
	if _, err := tr.Manifest("vs"); err == nil || !strings.Contains(err.Error(), "two architectures") {
		t.Fatal(err)
	}
}
