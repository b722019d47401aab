package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentworks-deploy/internal/safefs"
)

// stage puts the release together under its hidden name: contents from the
// payload, the rest copied from the sources that look found, then every byte
// verified and brought to the disk. Files are copied and never hard-linked: a
// link would share mode and bytes with another release, and one slip with
// chmod or an editor would break both.
func (s *Store) stage(ctx context.Context, m *Manifest, manifest []byte, l *look, payload *Payload) error {
	name := staging(m.ID)
	releases, err := os.OpenRoot(s.Layout.Releases())
	if err != nil {
		return fmt.Errorf("stage release %s: %w", m.ID, err)
	}
	defer releases.Close()
	if err := releases.RemoveAll(name); err != nil {
		return fmt.Errorf("stage release %s: remove what an earlier run left: %w", m.ID, err)
	}
	if err := releases.Mkdir(name, 0o700); err != nil {
		return fmt.Errorf("stage release %s: %w", m.ID, err)
	}
	root, err := releases.OpenRoot(name)
	if err != nil {
		return fmt.Errorf("stage release %s: %w", m.ID, err)
	}
	defer root.Close()
	w := &stager{root: root, m: m, placed: map[string]bool{}}
	if err := w.fill(ctx, manifest, l, payload, s.Now()); err != nil {
		return fmt.Errorf("stage release %s: %w", m.ID, err)
	}
	if err := s.seal(filepath.Join(s.Layout.Releases(), name)); err != nil {
		return fmt.Errorf("stage release %s: %w", m.ID, err)
	}
	return verify(ctx, filepath.Join(s.Layout.Releases(), name), m, manifest)
}

// seal gives the staged release in dir its closed modes and brings it to disk.
func (s *Store) seal(dir string) error {
	for _, d := range []string{dir, filepath.Join(dir, "bin")} {
		if _, _, err := chmod(d, s.UID, exactly(0o750)); err != nil {
			return err
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.SyncFS(int(f.Fd())); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

type stager struct {
	root   *os.Root
	m      *Manifest
	placed map[string]bool // paths written
}

func (w *stager) fill(ctx context.Context, manifest []byte, l *look, payload *Payload, now time.Time) error {
	if err := w.write(markerName, 0o600, strings.NewReader(marker(now))); err != nil {
		return err
	}
	if err := w.write(manifestName, 0o644, strings.NewReader(string(manifest))); err != nil {
		return err
	}
	places := w.m.contents()
	err := payload.contents(ctx, w.m, func(sha string, _ int64, body io.Reader) error {
		return w.place(places[sha][0], body)
	})
	if err != nil {
		return err
	}
	for _, sha := range slices.Sorted(maps.Keys(places)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.copies(sha, places[sha], l.sources[sha]); err != nil {
			return err
		}
	}
	for _, p := range slices.Sorted(maps.Keys(w.m.Links)) {
		if err := w.parents(p); err != nil {
			return err
		}
		if err := w.root.Symlink(w.m.Links[p], p); err != nil {
			return err
		}
	}
	return nil
}

// copies writes the content sha to all its paths that do not have it yet.
func (w *stager) copies(sha string, paths []string, source string) error {
	for _, p := range paths {
		if w.placed[p] {
			continue
		}
		var from *os.File
		var err error
		switch {
		case w.placed[paths[0]]:
			from, err = safefs.OpenIn(w.root, paths[0])
		case source != "":
			from, err = safefs.OpenFile(source)
		default:
			return fmt.Errorf("%s (content %.12s) was not sent and is not on the host any more; run the deploy again", p, sha)
		}
		if err != nil {
			return err
		}
		err = w.place(p, from)
		from.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *stager) place(p string, body io.Reader) error {
	perm := fs.FileMode(0o644)
	if w.m.Files[p].Mode == modeProgram {
		perm = 0o755
	}
	if err := w.parents(p); err != nil {
		return err
	}
	if err := w.write(p, perm, body); err != nil {
		return err
	}
	w.placed[p] = true
	return nil
}

// parents makes the folders on the way to p, each with its mode set on it and
// not left to the umask (case B08).
func (w *stager) parents(p string) error {
	dir := path.Dir(p)
	if dir == "." {
		return nil
	}
	if _, err := w.root.Lstat(dir); err == nil {
		return nil
	}
	if err := w.parents(dir); err != nil {
		return err
	}
	if err := w.root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return w.root.Chmod(dir, 0o755)
}

func (w *stager) write(p string, perm fs.FileMode, body io.Reader) (err error) {
	f, err := w.root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, body); err != nil {
		return fmt.Errorf("write %s: %w", p, err)
	}
	return f.Chmod(perm)
}

// marker is the in-progress marker's content; it names its maker, so that a
// later run removes only what is ours.
func marker(now time.Time) string {
	return fmt.Sprintf("agentworks-deploy %s\n", now.UTC().Format(time.RFC3339))
}
