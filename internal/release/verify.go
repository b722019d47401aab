package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"agentworks-deploy/internal/safefs"
)

// verify compares the release in the folder dir with its manifest, byte by byte:
// the manifest itself, each listed file's size, sha256 and exec bit, each link's
// target, and nothing besides them but folders on the way and the in-progress
// marker (case R-09). It changes nothing. The first difference is the error.
func verify(ctx context.Context, dir string, m *Manifest, manifest []byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("verify %s: %w", dir, err)
	}
	defer root.Close()
	known, err := m.names()
	if err != nil {
		return fmt.Errorf("verify %s: %w", dir, err)
	}
	v := &verifier{root: root, m: m, manifest: manifest, known: known, left: len(m.Files) + len(m.Links) + 1}
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		return v.entry(p, d)
	})
	if err == nil && v.left > 0 {
		err = v.missing()
	}
	if err != nil {
		return fmt.Errorf("verify %s: %w", dir, err)
	}
	return nil
}

type verifier struct {
	root     *os.Root
	m        *Manifest
	manifest []byte
	known    *names
	left     int
}

func (v *verifier) entry(p string, d fs.DirEntry) error {
	if p == "." {
		return nil
	}
	kind := v.known.kinds[p]
	switch {
	case d.IsDir() && kind == 'd':
		return nil
	case d.Type() == fs.ModeSymlink && kind == 'l':
		got, err := v.root.Readlink(p)
		if err != nil {
			return err
		}
		if got != v.m.Links[p] {
			return fmt.Errorf("%s: links to %q, the manifest says %q", p, got, v.m.Links[p])
		}
	case d.Type().IsRegular() && kind == 'f':
		got, err := hashFile(v.root, p)
		if err != nil {
			return err
		}
		if err := v.m.Files[p].differs(got); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	case d.Type().IsRegular() && p == manifestName:
		f, err := safefs.OpenIn(v.root, p)
		if err != nil {
			return err
		}
		defer f.Close()
		got, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
		if err != nil {
			return err
		}
		if !bytes.Equal(got, v.manifest) {
			return fmt.Errorf("%s: another manifest", p)
		}
	case d.Type().IsRegular() && p == markerName:
		return nil
	case kind == 0:
		return fmt.Errorf("%s: not listed", p)
	default:
		return fmt.Errorf("%s: is a %s, the manifest says otherwise", p, kindName(d.Type()))
	}
	v.left--
	return nil
}

func (v *verifier) missing() error {
	for p := range v.known.kinds {
		if _, err := v.root.Lstat(p); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: listed, but not there", p)
		}
	}
	return fmt.Errorf("%s: not there", manifestName)
}

func kindName(t fs.FileMode) string {
	switch {
	case t.IsDir():
		return "folder"
	case t&fs.ModeSymlink != 0:
		return "link"
	case t.IsRegular():
		return "file"
	}
	return "special file"
}

func hashFile(root *os.Root, p string) (File, error) {
	f, err := safefs.OpenIn(root, p)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	file, _, err := describe(f, p)
	return file, err
}
