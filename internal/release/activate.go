package release

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/safefs"
)

// place puts the staged release id into releases under its own name, in one
// step also where a broken one of that id stands there: the two change places,
// and what is broken goes with the leftovers. Done tells whether it stands
// there; with an error then, its name may not have reached the disk.
func (s *Store) place(id string) (done bool, err error) {
	releases, err := os.Open(s.Layout.Releases())
	if err != nil {
		return false, fmt.Errorf("place release %s: %w", id, err)
	}
	defer releases.Close()
	fd := int(releases.Fd())
	err = unix.Renameat2(fd, staging(id), fd, id, unix.RENAME_NOREPLACE)
	if err == unix.EEXIST {
		err = unix.Renameat2(fd, staging(id), fd, id, unix.RENAME_EXCHANGE)
	}
	if err != nil {
		return false, fmt.Errorf("place release %s: rename: %w", id, err)
	}
	if err := s.SyncDir(fd); err != nil {
		return true, fmt.Errorf("place release %s: sync %s: %w", id, s.Layout.Releases(), err)
	}
	return true, nil
}

// unplace takes place back; broken tells that a broken release of that id stood
// there before, which comes back.
func (s *Store) unplace(id string, broken bool) error {
	if !broken {
		return s.remove(id)
	}
	_, err := s.place(id)
	return err
}

// switchTo makes current name the release id, by a rename over it: a reader sees
// the old release or the new one, never none (case B31). Done tells whether
// current names it; with an error then, that may not have reached the disk.
func (s *Store) switchTo(id string) (done bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("switch current to %s: %w", id, err)
		}
	}()
	app, err := os.OpenRoot(s.Layout.App)
	if err != nil {
		return false, err
	}
	defer app.Close()
	dir, err := app.Open(".")
	if err != nil {
		return false, err
	}
	defer dir.Close()
	name := path.Base(s.Layout.Current())
	temp := safefs.TempName(name)
	if err := app.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := app.Symlink(path.Join(path.Base(s.Layout.Releases()), id), temp); err != nil {
		return false, err
	}
	if err := app.Rename(temp, name); err != nil {
		return false, errors.Join(err, app.Remove(temp))
	}
	if err := s.SyncDir(int(dir.Fd())); err != nil {
		return true, fmt.Errorf("sync %s: %w", s.Layout.App, err)
	}
	return true, nil
}

// unmark removes the in-progress marker of the release id (case R-04).
func (s *Store) unmark(id string) error {
	if err := os.Remove(filepath.Join(s.dir(id), markerName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the in-progress marker: %w", err)
	}
	return nil
}

// leftovers lists what runs that were cut off left behind: staged releases, the
// switch's temporary link, placed releases that carry our marker and never
// became current. The caller holds the deploy lock, so no such run is alive.
// Keep and the live release are never among the releases; their stale markers
// are.
func (s *Store) leftovers(keep string) ([]string, error) {
	current, _, err := s.current()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.Layout.Releases())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for leftovers: %w", err)
	}
	var left []string
	for _, e := range entries {
		name := e.Name()
		switch {
		case isStaging(name):
			left = append(left, s.dir(name))
		case e.IsDir() && IsID(name) && s.marked(name):
			if name == current || name == keep {
				left = append(left, filepath.Join(s.dir(name), markerName))
			} else {
				left = append(left, s.dir(name))
			}
		}
	}
	for _, name := range []string{path.Base(s.Layout.Current()), historyName} {
		temp := filepath.Join(s.Layout.App, safefs.TempName(name))
		if _, err := os.Lstat(temp); err == nil {
			left = append(left, temp)
		}
	}
	return left, nil
}

// clean removes what leftovers named.
func (s *Store) clean(left []string) error {
	var errs []error
	for _, p := range left {
		if filepath.Dir(p) == s.Layout.Releases() {
			errs = append(errs, s.remove(filepath.Base(p)))
		} else if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove leftovers: %w", err)
	}
	return nil
}

// remove takes name out of releases. A release goes under its hidden name first,
// so that a removal that is cut off leaves nothing that looks like a release.
func (s *Store) remove(name string) error {
	root, err := os.OpenRoot(s.Layout.Releases())
	if err != nil {
		return err
	}
	defer root.Close()
	if !isStaging(name) {
		hidden := staging(name)
		if err := root.RemoveAll(hidden); err != nil {
			return err
		}
		if err := root.Rename(name, hidden); err != nil {
			return err
		}
		name = hidden
	}
	return root.RemoveAll(name)
}

// maxMarker bounds what is read of a marker; ours is one line.
const maxMarker = 4 << 10

func (s *Store) marked(id string) bool {
	b, err := safefs.ReadFile(filepath.Join(s.dir(id), markerName), maxMarker)
	return err == nil && strings.HasPrefix(string(b), "agentworks-deploy ")
}

// dropHalves removes the programs that earlier deploys uploaded ahead of the
// first release, and their folder when it is empty: the release that is live
// holds this program now. While an upload is under way its folder is locked, and
// everything stays.
func (s *Store) dropHalves() error {
	dir, err := os.OpenFile(s.Layout.ServiceHalves(), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove uploaded programs: %w", err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil
	}
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if shaPattern.MatchString(name) || isStaging(name) {
			err = errors.Join(err, os.Remove(filepath.Join(dir.Name(), name)))
		}
	}
	if err != nil {
		return fmt.Errorf("remove uploaded programs: %w", err)
	}
	_ = os.Remove(dir.Name()) // refused while it holds anything
	return nil
}
