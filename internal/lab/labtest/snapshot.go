package labtest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Entry is what a snapshot keeps of one name.
type Entry struct {
	Mode     fs.FileMode // type and permissions
	UID, GID uint32
	Size     int64 // of regular files; 0 for everything else
	MTime    time.Time
	XAttrs   map[string]string // ACLs are system.posix_acl_access and …_default
	SHA256   string            // of regular files
	Link     string            // where a symbolic link points
}

func (e Entry) String() string {
	s := fmt.Sprintf("%v %d:%d", e.Mode, e.UID, e.GID)
	if e.Mode.IsRegular() {
		s += fmt.Sprintf(" %d bytes sha256 %.12s", e.Size, e.SHA256)
	}
	if e.Link != "" {
		s += " -> " + e.Link
	}
	for _, name := range slices.Sorted(maps.Keys(e.XAttrs)) {
		s += fmt.Sprintf(" %s=%x", name, e.XAttrs[name])
	}
	return s
}

// Snapshot is a full scan: every name below the roots, the roots included.
type Snapshot map[string]Entry

// Snapshot scans the roots as the lab sees them. A root that does not exist
// adds nothing.
func (l *Lab) Snapshot(t testing.TB, roots ...string) Snapshot {
	t.Helper()
	s := Snapshot{}
	l.must(t, func() error {
		for _, root := range roots {
			if err := s.scan(root); err != nil {
				return err
			}
		}
		return nil
	})
	return s
}

// Scan is Snapshot for the machine the test runs on.
func Scan(t testing.TB, roots ...string) Snapshot {
	t.Helper()
	s := Snapshot{}
	for _, root := range roots {
		if err := s.scan(root); err != nil {
			t.Fatalf("labtest: %v", err)
		}
	}
	return s
}

func (s Snapshot) scan(root string) error {
	return filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			s[path], err = look(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			delete(s, path) // it went while we looked
			return nil
		}
		return err
	})
}

func look(path string) (Entry, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Entry{}, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return Entry{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	e := Entry{Mode: info.Mode(), UID: st.Uid, GID: st.Gid, MTime: info.ModTime()}
	if e.XAttrs, err = readXAttrs(path); err != nil {
		return e, err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		e.Link, err = os.Readlink(path)
	case info.Mode().IsRegular():
		e.Size = info.Size()
		e.SHA256, err = digest(path)
	}
	return e, err
}

func digest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func readXAttrs(path string) (map[string]string, error) {
	names := make([]byte, 64<<10) // the kernel's limits for the list and for a value
	n, err := unix.Llistxattr(path, names)
	if n == 0 || errors.Is(err, unix.ENOTSUP) {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "llistxattr", Path: path, Err: err}
	}
	found := map[string]string{}
	for _, name := range strings.Split(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		value := make([]byte, 64<<10)
		size, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			return nil, &fs.PathError{Op: "lgetxattr " + name, Path: path, Err: err}
		}
		found[name] = string(value[:size])
	}
	return found, nil
}

// Without returns the snapshot without the names that drop answers true for.
func (s Snapshot) Without(drop func(path string) bool) Snapshot {
	kept := Snapshot{}
	for path, e := range s {
		if !drop(path) {
			kept[path] = e
		}
	}
	return kept
}

// Diff says, sorted by name, what differs in after: everything but times. None
// means that nothing changed.
func (s Snapshot) Diff(after Snapshot) []string { return s.diff(after, false) }

// DiffTimes is Diff and modification times.
func (s Snapshot) DiffTimes(after Snapshot) []string { return s.diff(after, true) }

func (s Snapshot) diff(after Snapshot, times bool) []string {
	var lines []string
	for path, a := range s {
		b, ok := after[path]
		switch {
		case !ok:
			lines = append(lines, fmt.Sprintf("%s: gone (was %v)", path, a))
		case a.String() != b.String():
			lines = append(lines, fmt.Sprintf("%s: %v, was %v", path, b, a))
		case times && !a.MTime.Equal(b.MTime):
			lines = append(lines, fmt.Sprintf("%s: modified %s, was %s", path, b.MTime.Format(time.RFC3339Nano), a.MTime.Format(time.RFC3339Nano)))
		}
	}
	for path, b := range after {
		if _, ok := s[path]; !ok {
			lines = append(lines, fmt.Sprintf("%s: new (%v)", path, b))
		}
	}
	slices.Sort(lines)
	return lines
}
