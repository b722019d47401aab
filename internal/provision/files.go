package provision

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// Program is an executable to install, known by its sha256 (hex) from the
// operator's side. Open is not called by a plan, nor when the right one is there.
type Program struct {
	SHA256 string
	Open   func() (io.ReadCloser, error)
}

// file is a file that belongs to provisioning alone: what differs is replaced.
type file struct {
	path        string
	user, group owner
	mode        uint32
	same        func(have io.Reader) (bool, error)
	open        func() (io.ReadCloser, error)
}

func (w file) attr() safefs.Attr { return safefs.Exact(w.user.id, w.group.id, w.mode) }

// rootFile is a file of root:root with this content.
func rootFile(path string, mode uint32, content []byte) file {
	return file{path, rootOwner(), rootOwner(), mode,
		func(have io.Reader) (bool, error) {
			data, err := io.ReadAll(io.LimitReader(have, int64(len(content))+1))
			return bytes.Equal(data, content), err
		},
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }}
}

// rootProgram is an executable of root:root.
func rootProgram(path string, p Program) file {
	return file{path, rootOwner(), rootOwner(), 0o755,
		func(have io.Reader) (bool, error) {
			sum := sha256.New()
			_, err := io.Copy(sum, have)
			return hex.EncodeToString(sum.Sum(nil)) == p.SHA256, err
		}, func() (io.ReadCloser, error) { return p.verified(path) }}
}

// verified reads the whole program before a byte of it is installed.
func (p Program) verified(path string) (io.ReadCloser, error) {
	in, err := p.Open()
	if err != nil {
		return nil, fmt.Errorf("install %s: %w", path, err)
	}
	defer in.Close()
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("install %s: %w", path, err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != p.SHA256 {
		return nil, report.Coded(report.ExitUnfinished, "install %s: what arrived has sha256 %x, the operator's has %s", path, sum, p.SHA256)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// compare says how the file differs; empty means not at all.
func (w file) compare(sys System) (string, error) {
	dir, name, err := safefs.OpenParent(sys.at(w.path))
	if errors.Is(err, fs.ErrNotExist) {
		return w.making(), nil
	}
	if err != nil {
		return "", err
	}
	defer dir.Close()
	n, st, listed, err := inspect(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return w.making(), nil
	}
	if err != nil {
		return "", err
	}
	defer n.Close()
	if !st.IsRegular() {
		return "", report.Coded(report.ExitState, "%s is a %s and not a regular file; it is left alone; next, on the host: look at it, then %s", w.path, st.Kind(), aside(w.path, st))
	}
	have, err := dir.OpenRegular(name)
	if err != nil {
		return "", err
	}
	defer have.Close()
	same, err := w.same(have)
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", w.path, err)
	case !same:
		return fmt.Sprintf("replace %s", w.path), nil
	case w.attr().Diff(st) != "":
		return fmt.Sprintf("set %s to %s:%s %04o (mode %04o, %s)", w.path, w.user.name, w.group.name, w.mode, st.Perm(), handsOf(st, w.user, w.group)), nil
	case listed:
		return fmt.Sprintf("take the ACL from %s (%s:%s %04o)", w.path, w.user.name, w.group.name, w.mode), nil
	}
	if _, err := dir.Lstat(safefs.TempName(name)); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("remove what a killed run left beside %s", w.path), err
	}
	return "", nil
}

func (w file) making() string {
	return fmt.Sprintf("make %s %s:%s %04o", w.path, w.user.name, w.group.name, w.mode)
}

// put makes it so. Content that is right already is not written again.
func (w file) put(sys System) error {
	dir, name, err := safefs.OpenParent(sys.at(w.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if have, err := dir.OpenRegular(name); err == nil {
		same, err := w.same(have)
		have.Close()
		if err == nil && same {
			if err := dir.DropStale(name); err != nil {
				return err
			}
			return ensureRegular(sys.at(w.path), w.attr())
		}
	}
	content, err := w.open()
	if err != nil {
		return err
	}
	defer content.Close()
	if err := dir.Replace(name, safefs.Content{From: content, UID: w.user.id, GID: w.group.id, Mode: w.mode}); err != nil {
		return err
	}
	return ensureRegular(sys.at(w.path), w.attr()) // the folder may have given it an ACL
}

// files looks at folders and the files in them, in this order.
func (r *run) files(dirs []folder, list []file) (findings, error) {
	f, err := r.folders(dirs)
	if err != nil {
		return f, err
	}
	var todo []file
	for _, w := range list {
		what, err := w.compare(r.sys)
		if err != nil {
			return f, err
		}
		if what != "" {
			f.add("", "%s", what)
			todo = append(todo, w)
		}
	}
	folders := f.apply
	f.apply = func(ctx context.Context) error {
		if err := folders(ctx); err != nil {
			return err
		}
		for _, w := range todo {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := w.put(r.sys); err != nil {
				return err
			}
		}
		return nil
	}
	return f, nil
}

// programs are LIBEXEC and what is executed there.
func (r *run) programs(context.Context) (findings, error) {
	f, err := r.files(r.libexec(), []file{
		rootProgram(r.l.Slotctl(), r.Slotctl),
		rootProgram(r.l.AdminHalf(), r.Half),
	})
	if err != nil {
		return f, err
	}
	for _, p := range []string{"/usr", "/usr/local", "/etc", "/etc/sudoers.d"} { // what ours stands in
		switch st, err := r.lstat(p); {
		case err == nil && st.IsDir():
			f.notes = append(f.notes, writable("programs", p, st)...)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return f, err
		}
	}
	return f, nil
}

// libexec is LIBEXEC and the folders on the way that are ours.
func (r *run) libexec() []folder {
	return rootFolders(r.l.Libexec(), "/usr/local/libexec")
}

// rootFolders is p and what it stands in, up to top, root:root 0755.
func rootFolders(p, top string) []folder {
	var list []folder
	for ; within(top, p); p = path.Dir(p) {
		list = append([]folder{{p, "", rootOwner(), rootOwner(), 0o755}}, list...)
	}
	return list
}
