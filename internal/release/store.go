package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/safefs"
)

// Store is the folder of releases on its host, seen as the service account.
type Store struct {
	Layout hosts.Layout
	Slots  bool // a slot host: slots must reach the launcher
	UID    int  // of the service account
	Now    func() time.Time
	// SyncFS and SyncDir bring files and names to the disk; tests of failing
	// disks replace them (case B27).
	SyncFS, SyncDir func(fd int) error
}

// NewStore is the store of h for the account this process runs as.
func NewStore(h *hosts.Host) *Store {
	return &Store{
		Layout:  h.Layout(),
		Slots:   h.Slots.Mode == "on" || h.Slots.Mode == "optin",
		UID:     os.Geteuid(),
		Now:     time.Now,
		SyncFS:  unix.Syncfs,
		SyncDir: unix.Fsync,
	}
}

func (s *Store) dir(id string) string { return filepath.Join(s.Layout.Releases(), id) }

// staging is the fixed hidden name under which the release id is put together.
func staging(id string) string { return safefs.TempName(id) }

func isStaging(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, safefs.TempName("")[1:])
}

// current is the id that current names, and its target's text. It is "" where
// there is none, or where it names something outside releases.
func (s *Store) current() (id, target string, err error) {
	target, err = os.Readlink(s.Layout.Current())
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("read current: %w", err)
	}
	full := target
	if !path.IsAbs(full) {
		full = path.Join(s.Layout.App, full)
	}
	if path.Dir(full) == s.Layout.Releases() {
		id = path.Base(full)
	}
	return id, target, nil
}

// look is what the host has of a release before anything is sent.
type look struct {
	Present bool              // the release is there and every byte is right
	Broken  error             // it is there, and this is wrong with it
	Missing []string          // digests the host has nowhere, sorted
	sources map[string]string // digest → a file on this host that has it, verified
	Bytes   int64             // of Missing
}

// look compares the release m with the host, and finds what other releases hold
// of its content. A file there counts when its own bytes have the digest, since
// a manifest's word says nothing of what happened after. It changes nothing.
func (s *Store) look(ctx context.Context, m *Manifest, manifest []byte) (*look, error) {
	l := &look{sources: map[string]string{}}
	info, err := os.Lstat(s.dir(m.ID))
	switch {
	case err == nil && info.IsDir():
		if l.Broken = verify(ctx, s.dir(m.ID), m, manifest); l.Broken == nil {
			l.Present = true
			return l, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	case err == nil:
		return nil, fmt.Errorf("%s is in the way: a %s, not a release; look at it and move it away", s.dir(m.ID), kindName(info.Mode()))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("look for release %s: %w", m.ID, err)
	}
	if err := s.findContents(ctx, m, l.sources); err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for _, f := range m.Files {
		sizes[f.SHA256] = f.Size
	}
	for _, sha := range slices.Sorted(maps.Keys(sizes)) {
		if l.sources[sha] == "" {
			l.Missing = append(l.Missing, sha)
			l.Bytes += sizes[sha]
		}
	}
	return l, nil
}

// findContents fills found with files of the releases on this host, and the
// programs that are installed beside them, whose bytes have a digest that m lists.
func (s *Store) findContents(ctx context.Context, m *Manifest, found map[string]string) error {
	wanted := m.contents()
	releases, err := s.releases()
	if err != nil {
		return err
	}
	for _, id := range releases {
		if len(found) == len(wanted) {
			return nil
		}
		other, _, err := s.stored(id)
		if err != nil {
			continue // a release of another tool, or one beyond use as a source
		}
		if err := s.contentsOf(ctx, id, other, wanted, found); err != nil {
			return err
		}
	}
	root, err := os.OpenRoot(s.Layout.Libexec())
	if err != nil {
		return nil // not provisioned, which the preflight says
	}
	defer root.Close()
	for _, program := range []string{s.Layout.AdminHalf(), s.Layout.Slotctl()} {
		if got, err := hashFile(root, filepath.Base(program)); err == nil && wanted[got.SHA256] != nil && found[got.SHA256] == "" {
			found[got.SHA256] = program
		}
	}
	return nil
}

func (s *Store) contentsOf(ctx context.Context, id string, other *Manifest, wanted map[string][]string, found map[string]string) error {
	root, err := os.OpenRoot(s.dir(id))
	if err != nil {
		return nil // gone, or closed to us: no source
	}
	defer root.Close()
	for _, p := range slices.Sorted(maps.Keys(other.Files)) {
		f := other.Files[p]
		if wanted[f.SHA256] == nil || found[f.SHA256] != "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if got, err := hashFile(root, p); err == nil && got.SHA256 == f.SHA256 {
			found[f.SHA256] = filepath.Join(s.dir(id), p)
		}
	}
	return nil
}

// releases lists the release folders by name, which is no order of theirs: the
// history's numbers are. Hidden ones and links are none.
func (s *Store) releases() ([]string, error) {
	entries, err := os.ReadDir(s.Layout.Releases())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list releases: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && IsID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}
