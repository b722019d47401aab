package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// Tree is a release on the operator's side: files and links of a folder that
// is only ever read (case R-10), programs put into bin/ from elsewhere.
type Tree struct {
	files     map[string]source
	links     map[string]string
	announced *Manifest // the manifest.json that lay in the folder, nil without
	Replaced  []string  // programs of the folder that Complete replaced
}

// source is where a file's bytes are and what was found in them.
type source struct {
	path  string // on the operator's machine
	file  File
	mtime time.Time
	prog  program
	isELF bool
	ours  bool // a runtime program
}

// runtimePrograms are the programs of this project that every release holds in
// its bin/, by file name.
func runtimePrograms() []string {
	return []string{"agentworks-deploy", "slotctl", "video-studio-landlock-runner"}
}

// ReadTree reads and hashes the release in the folder dir; called is what a
// person calls it. A folder without a program of its own in bin/ is none. Empty
// folders are no part of a release. Devices, sockets, links out, and names that
// could not cross are refused; so is a folder that differs from the manifest in it.
func ReadTree(ctx context.Context, dir, called string) (*Tree, error) {
	if !runs(dir) {
		if below := lower(dir); below != "" {
			return nil, fmt.Errorf("%s is no release: it lies one folder lower, in %s/; name that folder, or pack it with its bin/ at the top (tar -C %s -czf release.tar.gz .)", called, below, report.Quote(below))
		}
		return nil, fmt.Errorf("%s is no release: its bin/ holds no program of a service; name the folder or tar that a build made", called)
	}
	t := &Tree{files: map[string]source{}, links: map[string]string{}}
	known := newNames()
	err := filepath.WalkDir(dir, func(full string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if full == dir {
			return nil
		}
		rel, err := filepath.Rel(dir, full)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return checkPath(rel) // an empty folder is no part of the release
		case rel == manifestName && d.Type().IsRegular():
			t.announced, err = readManifestFile(full)
			return err
		case rel == markerName:
			return fmt.Errorf("%s: an unfinished release", rel)
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(full)
			if err != nil {
				return err
			}
			t.links[rel] = target
			return known.addLink(rel, target)
		case d.Type().IsRegular():
			if err := known.addFile(rel); err != nil {
				return err
			}
			t.files[rel], err = readSource(full, rel)
			return err
		}
		return fmt.Errorf("%s: neither file, folder nor link", rel)
	})
	if err != nil {
		return nil, fmt.Errorf("read release %s: %w", called, err)
	}
	if len(t.files) == 0 {
		return nil, fmt.Errorf("read release %s: it holds no file", called)
	}
	if t.announced != nil {
		if err := t.matches(t.announced); err != nil {
			return nil, fmt.Errorf("release %s is not the one its %s lists: %w", called, manifestName, err)
		}
	}
	return t, nil
}

// runs tells whether the folder dir brings a program of its own in bin/, without
// which no service could be started from it. It is asked before anything is read,
// since dir may be anything, a whole disk too.
func runs(dir string) bool {
	entries, err := os.ReadDir(filepath.Join(dir, "bin"))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		info, err := e.Info()
		return err == nil && !slices.Contains(runtimePrograms(), e.Name()) &&
			(e.Type() == fs.ModeSymlink || e.Type().IsRegular() && modeOf(info.Mode()) == modeProgram)
	})
}

// lower is the one folder in dir that is a release where dir is none: an archive
// of a folder with its name holds that.
func lower(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || !entries[0].IsDir() || !runs(filepath.Join(dir, entries[0].Name())) || checkPath(entries[0].Name()) != nil {
		return ""
	}
	return entries[0].Name()
}

// Named tells whether the build gave the release its id, by a manifest of its own.
func (t *Tree) Named() bool { return t.announced != nil }

func readManifestFile(full string) (*Manifest, error) {
	b, err := safefs.ReadFile(full, maxManifest)
	if err != nil {
		return nil, err
	}
	return parseManifest(b)
}

// readSource reads the file at full, which errors call by the name called.
func readSource(full, called string) (source, error) {
	f, err := safefs.OpenFile(full)
	if err != nil {
		return source{}, err
	}
	defer f.Close()
	file, mtime, err := describe(f, called)
	if err != nil {
		return source{}, err
	}
	s := source{path: full, mtime: mtime, file: file}
	s.prog, s.isELF = readProgram(f)
	return s, nil
}

// describe reads f and tells how a manifest lists it, and when it was written;
// name is how errors call it.
func describe(f *os.File, name string) (File, time.Time, error) {
	info, err := f.Stat()
	if err != nil {
		return File{}, time.Time{}, err
	}
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return File{}, time.Time{}, fmt.Errorf("read %s: %w", name, err)
	}
	return File{SHA256: hex.EncodeToString(h.Sum(nil)), Size: n, Mode: modeOf(info.Mode())}, info.ModTime(), nil
}

// modeOf keeps of a file's mode whether its owner may execute it.
func modeOf(m fs.FileMode) string {
	if m&0o100 != 0 {
		return modeProgram
	}
	return modeFile
}

// matches tells how the tree differs from m: first difference by name.
func (t *Tree) matches(m *Manifest) error {
	for _, p := range slices.Sorted(maps.Keys(m.Files)) {
		s, ok := t.files[p]
		if !ok {
			return fmt.Errorf("%s: listed, but not there", p)
		}
		if err := m.Files[p].differs(s.file); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(m.Links)) {
		if got, ok := t.links[p]; !ok || got != m.Links[p] {
			return fmt.Errorf("%s: is not the link to %s", p, m.Links[p])
		}
	}
	for _, p := range slices.Sorted(maps.Keys(t.files)) {
		if _, ok := m.Files[p]; !ok {
			return fmt.Errorf("%s: not listed", p)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(t.links)) {
		if _, ok := m.Links[p]; !ok {
			return fmt.Errorf("%s: not listed", p)
		}
	}
	return nil
}

func (f File) differs(got File) error {
	switch {
	case f.Size != got.Size:
		return fmt.Errorf("%d bytes, the manifest says %d", got.Size, f.Size)
	case f.SHA256 != got.SHA256:
		return errors.New("other bytes than the manifest's sha256")
	case f.Mode != got.Mode:
		return fmt.Errorf("mode %s, the manifest says %s", got.Mode, f.Mode)
	}
	return nil
}

// Complete puts the runtime programs found in the folder programs into the
// tree's bin/, in place of what the release brought under those names, and adds
// the link to the host's log folder.
func (t *Tree) Complete(programs string) error {
	for _, name := range runtimePrograms() {
		s, err := readSource(filepath.Join(programs, name), name)
		if err != nil {
			return fmt.Errorf("find the runtime program %s beside this one: %w (build it with make build)", name, err)
		}
		if !s.isELF || s.prog.glibc != "" {
			return fmt.Errorf("runtime program %s in %s is not a static Linux program", name, programs)
		}
		s.file.Mode, s.ours = modeProgram, true
		p := path.Join("bin", name)
		if old, ok := t.files[p]; ok && old.file != s.file {
			t.Replaced = append(t.Replaced, name)
		}
		if _, ok := t.links[p]; ok {
			delete(t.links, p)
			t.Replaced = append(t.Replaced, name)
		}
		t.files[p] = s
	}
	t.links[logsLink] = logsTarget
	return nil
}

// Manifest describes the completed tree for product. Where the folder brought
// a manifest, product, build time and revisions are that one's; else the build
// time is that of the newest file the release brought, so that one build has one
// id however often it is deployed.
func (t *Tree) Manifest(product string) (*Manifest, error) {
	m := &Manifest{V: 1, Product: product, OS: "linux", Revisions: map[string]string{}, Files: map[string]File{}, Links: maps.Clone(t.links)}
	var err error
	if m.Arch, err = t.arch(); err != nil {
		return nil, err
	}
	for p, s := range t.files {
		m.Files[p] = s.file
		if !s.ours && s.mtime.After(m.BuiltAt) {
			m.BuiltAt = s.mtime
		}
		if s.prog.arch == m.Arch && newer(s.prog.glibc, m.Glibc) {
			m.Glibc = s.prog.glibc
		}
	}
	if a := t.announced; a != nil {
		if a.Product != product {
			return nil, fmt.Errorf("release %s is one of product %s, not of %s", a.ID, a.Product, product)
		}
		m.BuiltAt, m.Revisions = a.BuiltAt, a.Revisions
		if newer(a.Glibc, m.Glibc) {
			m.Glibc = a.Glibc
		}
	}
	m.BuiltAt = m.BuiltAt.UTC().Truncate(time.Second)
	m.ID = m.makeID()
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("release of %s: %w", product, err)
	}
	return m, nil
}

// arch is the one architecture of the programs directly in bin/; programs
// elsewhere (prebuilt helpers of other systems) decide nothing.
func (t *Tree) arch() (string, error) {
	first, arch := "", ""
	for _, p := range slices.Sorted(maps.Keys(t.files)) {
		s := t.files[p]
		if !s.isELF || path.Dir(p) != "bin" {
			continue
		}
		if arch == "" {
			first, arch = p, s.prog.arch
		}
		if s.prog.arch != arch {
			return "", fmt.Errorf("the release holds programs of two architectures: %s is %s, %s is %s", first, arch, p, s.prog.arch)
		}
	}
	if arch == "" {
		arch = runtime.GOARCH
	}
	return arch, nil
}

// open returns the bytes of the file at p, which WritePayload compares with
// the manifest's size; the host compares the digest.
func (t *Tree) open(p string) (io.ReadCloser, error) {
	s, ok := t.files[p]
	if !ok {
		return nil, fmt.Errorf("%s: not in the release", p)
	}
	return safefs.OpenFile(s.path)
}
