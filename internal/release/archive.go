package release

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"
)

// Limits bound what Unpack writes, so that a small archive cannot fill a disk.
type Limits struct {
	Bytes   int64
	Entries int
}

// DefaultLimits fit every release seen so far several times over.
func DefaultLimits() Limits { return Limits{Bytes: 16 << 30, Entries: 500_000} }

// Unpack writes the tar archive r, plain or gzip, into the empty folder dir.
// The archive holds the release at its top ("tar -C DIR -cf release.tar .").
// Only files, folders, relative links that stay inside, and hard links to files
// before them are taken; everything else refuses the whole archive: paths that
// leave it, names that stand twice, entries below a link, devices.
func Unpack(ctx context.Context, r io.Reader, dir string, limits Limits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("unpack into %s: %w", dir, err)
	}
	defer root.Close()
	plain, err := decompress(r)
	if err != nil {
		return fmt.Errorf("unpack: %w", worded(err, 0))
	}
	u := &unpacker{root: root, known: newNames(), sizes: map[string]int64{}, left: limits}
	tr := tar.NewReader(plain)
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpack: %w", worded(err, n))
		}
		if err := u.entry(h, tr); err != nil {
			return fmt.Errorf("unpack: %w", worded(err, n+1))
		}
	}
}

// worded says in a person's words what a reader found wrong with the archive;
// read is how many entries were right before that.
func worded(err error, read int) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.As(err, &corrupt):
		return errors.New("its compressed bytes are damaged; make or copy it again")
	case read == 0 && (errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF)):
		return errors.New("it is no tar, neither plain nor gzip")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("it ends too early, behind entry %d; make or copy it again", read)
	case errors.Is(err, tar.ErrHeader):
		return fmt.Errorf("it is damaged behind entry %d; make or copy it again", read)
	}
	return err
}

func decompress(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	head, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(b)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}), bytes.HasPrefix(head, []byte("BZh")), bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X'}):
		return nil, errors.New("compressed with something else than gzip; give a plain or gzip tar")
	}
	return b, nil
}

type unpacker struct {
	root  *os.Root
	known *names
	sizes map[string]int64 // of the files written so far
	left  Limits
}

func (u *unpacker) entry(h *tar.Header, body io.Reader) error {
	if u.left.Entries--; u.left.Entries < 0 {
		return errors.New("too many entries")
	}
	name := strings.TrimPrefix(h.Name, "./")
	if h.Typeflag == tar.TypeDir {
		name = strings.TrimSuffix(name, "/")
		if name == "" || name == "." {
			return nil
		}
		return u.folder(name)
	}
	if name == manifestName { // known refuses it: it is the deploy's own name
		if h.Typeflag != tar.TypeReg || u.sizes[name] != 0 {
			return fmt.Errorf("%s: not one plain file", name)
		}
		return u.file(name, h, body)
	}
	switch h.Typeflag {
	case tar.TypeReg:
		if err := u.known.addFile(name); err != nil {
			return err
		}
		return u.file(name, h, body)
	case tar.TypeSymlink:
		if err := u.known.addLink(name, h.Linkname); err != nil {
			return err
		}
		if err := u.parents(name); err != nil {
			return err
		}
		return u.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		if err := u.known.addFile(name); err != nil {
			return err
		}
		return u.hardLink(name, strings.TrimPrefix(h.Linkname, "./"))
	case tar.TypeXGlobalHeader: // comments such as git archive's
		return nil
	}
	return fmt.Errorf("%q: an entry of type %q; a release holds files, folders and links only", h.Name, h.Typeflag)
}

func (u *unpacker) folder(name string) error {
	if err := u.known.addFolder(name); err != nil {
		return err
	}
	return u.root.MkdirAll(name, 0o700)
}

func (u *unpacker) parents(name string) error {
	if dir := path.Dir(name); dir != "." {
		return u.root.MkdirAll(dir, 0o700)
	}
	return nil
}

func (u *unpacker) create(name string, perm os.FileMode) (*os.File, error) {
	if err := u.parents(name); err != nil {
		return nil, err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, err
	}
	return f, f.Chmod(perm)
}

func (u *unpacker) write(name string, perm os.FileMode, at time.Time, size int64, body io.Reader) (err error) {
	if u.left.Bytes -= size; size < 0 || u.left.Bytes < 0 {
		return fmt.Errorf("%s: the release is larger than allowed", name)
	}
	f, err := u.create(name, perm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.CopyN(f, body, size); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	u.sizes[name] = size
	return u.root.Chtimes(name, at, at)
}

func (u *unpacker) file(name string, h *tar.Header, body io.Reader) error {
	perm := os.FileMode(0o600)
	if h.Mode&0o100 != 0 {
		perm = 0o700
	}
	return u.write(name, perm, h.ModTime, h.Size, body)
}

// hardLink copies the file that an entry before this one wrote: in the host's
// releases every file stands alone.
func (u *unpacker) hardLink(name, target string) error {
	size, ok := u.sizes[target]
	if !ok {
		return fmt.Errorf("%s: a hard link to %q, which is no file before it in the archive", name, target)
	}
	f, err := u.root.Open(target)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return u.write(name, info.Mode().Perm(), info.ModTime(), size, f)
}
