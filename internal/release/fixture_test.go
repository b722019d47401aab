package release

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/hosts"
)

// elfFile is the smallest static program for machine (62: amd64, 183: arm64)
// that an ELF reader accepts, with text behind it.
func elfFile(machine uint16, text string) []byte {
	b := make([]byte, 64)
	copy(b, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint16(b[16:], 2) // ET_EXEC
	binary.LittleEndian.PutUint16(b[18:], machine)
	binary.LittleEndian.PutUint32(b[20:], 1)
	binary.LittleEndian.PutUint16(b[52:], 64)
	return append(b, text...)
}

type content struct {
	data string
	mode os.FileMode
	link string
}

// tree writes a folder of files and links.
func tree(t *testing.T, dir string, files map[string]content) string {
	t.Helper()
	for _, p := range slices.Sorted(maps.Keys(files)) {
		full := filepath.Join(dir, p)
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		if f := files[p]; f.link != "" {
			must(t, os.Symlink(f.link, full))
		} else {
			must(t, os.WriteFile(full, []byte(f.data), f.mode))
			must(t, os.Chmod(full, f.mode))
		}
	}
	return dir
}

func sampleTree() map[string]content {
	return map[string]content{
		"bin/vs-workspace":    {data: "#!/bin/sh\nexit 0\n", mode: 0o755},
		"bin/vs-agent":        {data: "#!/bin/sh\nexit 0\n", mode: 0o755}, // the same bytes twice
		"frontend/index.html": {data: "<p>hello", mode: 0o644},
		"frontend/home.html":  {link: "index.html"},
		"lib/deep/er/data":    {data: "data", mode: 0o600},
		"empty":               {data: "", mode: 0o644},
	}
}

// programs is a folder with stand-ins for the runtime's programs.
func programs(t *testing.T, build string) string {
	t.Helper()
	files := map[string]content{}
	for _, name := range runtimePrograms() {
		files[name] = content{data: string(elfFile(62, name+build)), mode: 0o755}
	}
	return tree(t, t.TempDir(), files)
}

// built is a completed release with its manifest.
type built struct {
	tree     *Tree
	m        *Manifest
	manifest []byte
}

func build(t *testing.T, dir, programs string) built {
	t.Helper()
	tr, err := ReadTree(context.Background(), dir, "it")
	must(t, err)
	must(t, tr.Complete(programs))
	m, err := tr.Manifest("vs")
	must(t, err)
	b, err := m.Encode()
	must(t, err)
	return built{tr, m, b}
}

// sample2 is a second build of the sample with one changed file.
func variant(t *testing.T, page string) built {
	t.Helper()
	files := sampleTree()
	files["frontend/index.html"] = content{data: page, mode: 0o644}
	return build(t, tree(t, t.TempDir(), files), programs(t, "1"))
}

func (b built) payload(t *testing.T, wanted []string) *Payload {
	t.Helper()
	var buf bytes.Buffer
	must(t, WritePayload(context.Background(), &buf, b.manifest, b.m, b.tree, wanted, nil))
	return ReadPayload(&buf)
}

// testStore is a host's app folder in a temporary folder.
func testStore(t *testing.T) *Store {
	t.Helper()
	app := t.TempDir()
	must(t, os.Chmod(app, 0o755))
	must(t, os.Mkdir(filepath.Join(app, "releases"), 0o700))
	return &Store{
		Layout:  hosts.Layout{Product: "vs", Prefix: "slot", App: app, Docs: app + "/data/docs", Home: app + "/home"},
		Slots:   true,
		UID:     os.Geteuid(),
		Now:     func() time.Time { return time.Date(2026, 10, 4, 12, 0, 0, 0, time.UTC) },
		SyncFS:  func(int) error { return nil },
		SyncDir: unix.Fsync,
	}
}

// install stages, places and switches b, without services.
func install(t *testing.T, s *Store, b built) *look {
	t.Helper()
	ctx := context.Background()
	l, err := s.look(ctx, b.m, b.manifest)
	must(t, err)
	p := b.payload(t, l.Missing)
	_, _, err = p.manifest(Digest(b.manifest))
	must(t, err)
	must(t, s.stage(ctx, b.m, b.manifest, l, p))
	_, err = s.place(b.m.ID)
	must(t, err)
	_, err = s.switchTo(b.m.ID)
	must(t, err)
	must(t, s.unmark(b.m.ID))
	must(t, s.remove(staging(b.m.ID)))
	return l
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func perm(t *testing.T, p string) uint32 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(p, &st))
	return st.Mode & 0o7777
}
