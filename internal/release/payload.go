package release

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// A payload is what crosses the channel: a tar whose first entry is the
// manifest and whose others are the contents the host asked for, each once,
// named content/<sha256>. Folders, links, modes and owners never cross; they
// follow from the manifest.
const contentPrefix = "content/"

// WritePayload writes the manifest's bytes and the wanted contents of t to w.
// Send tells the bytes sent so far, for progress; it may be nil.
func WritePayload(ctx context.Context, w io.Writer, manifest []byte, m *Manifest, t *Tree, wanted []string, send func(int64)) error {
	tw := tar.NewWriter(w)
	if err := tw.WriteHeader(&tar.Header{Name: manifestName, Typeflag: tar.TypeReg, Size: int64(len(manifest)), Mode: 0o644}); err != nil {
		return fmt.Errorf("send the manifest: %w", err)
	}
	if _, err := tw.Write(manifest); err != nil {
		return fmt.Errorf("send the manifest: %w", err)
	}
	places := m.contents()
	var sent int64
	for _, sha := range wanted {
		if err := ctx.Err(); err != nil {
			return err
		}
		paths := places[sha]
		if len(paths) == 0 {
			return fmt.Errorf("the host asks for content %.12s, which release %s does not hold", sha, m.ID)
		}
		p := paths[0]
		size := m.Files[p].Size
		if err := sendFile(tw, sha, t, p, size); err != nil {
			return fmt.Errorf("send %s: %w", p, err)
		}
		sent += size
		if send != nil {
			send(sent)
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("send the end: %w", err)
	}
	return nil
}

func sendFile(tw *tar.Writer, sha string, t *Tree, p string, size int64) error {
	f, err := t.open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := tw.WriteHeader(&tar.Header{Name: contentPrefix + sha, Typeflag: tar.TypeReg, Size: size, Mode: 0o644}); err != nil {
		return err
	}
	if _, err := io.CopyN(tw, f, size); err != nil {
		return fmt.Errorf("the file changed after it was read: %w", err)
	}
	return nil
}

// contents maps each digest to the sorted paths that have it.
func (m *Manifest) contents() map[string][]string {
	c := map[string][]string{}
	for _, p := range slices.Sorted(maps.Keys(m.Files)) {
		sha := m.Files[p].SHA256
		c[sha] = append(c[sha], p)
	}
	return c
}

// Payload reads what WritePayload wrote, and trusts none of it.
type Payload struct {
	tr *tar.Reader
}

// ReadPayload starts to read r.
func ReadPayload(r io.Reader) *Payload { return &Payload{tr: tar.NewReader(r)} }

// manifest reads the first entry. Announced is the manifest's hex sha256 that
// came another way, with the request (case R-09).
func (p *Payload) manifest(announced string) (*Manifest, []byte, error) {
	h, err := p.tr.Next()
	if err != nil {
		return nil, nil, fmt.Errorf("read the payload: %w", noEOF(err))
	}
	if h.Name != manifestName || h.Typeflag != tar.TypeReg || h.Size > maxManifest {
		return nil, nil, fmt.Errorf("read the payload: it begins with %q, not with a manifest", h.Name)
	}
	b, err := io.ReadAll(p.tr)
	if err != nil {
		return nil, nil, fmt.Errorf("read the manifest: %w", noEOF(err))
	}
	if got := Digest(b); got != announced {
		return nil, nil, fmt.Errorf("the manifest's sha256 is %.12s, announced is %.12s", got, announced)
	}
	m, err := parseManifest(b)
	return m, b, err
}

// contents hands each content that follows to store, which reads body to its
// end. A content that m does not list, comes twice, or differs from its digest
// or size ends it.
func (p *Payload) contents(ctx context.Context, m *Manifest, store func(sha string, size int64, body io.Reader) error) error {
	places := m.contents()
	seen := map[string]bool{}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := p.tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the payload: %w", err)
		}
		sha, ok := strings.CutPrefix(h.Name, contentPrefix)
		paths := places[sha]
		switch {
		case !ok, h.Typeflag != tar.TypeReg, len(paths) == 0:
			return fmt.Errorf("read the payload: an entry %q that the manifest does not list", h.Name)
		case seen[sha]:
			return fmt.Errorf("read the payload: %s came twice", paths[0])
		case h.Size != m.Files[paths[0]].Size:
			return fmt.Errorf("read the payload: %s has %d bytes, the manifest says %d", paths[0], h.Size, m.Files[paths[0]].Size)
		}
		seen[sha] = true
		hash := sha256.New()
		if err := store(sha, h.Size, io.TeeReader(p.tr, hash)); err != nil {
			return err
		}
		if got := hex.EncodeToString(hash.Sum(nil)); got != sha {
			return fmt.Errorf("%s arrived with other bytes than its sha256; it changed while it was sent, or on the way", paths[0])
		}
	}
}

// noEOF words the end of a stream that had to go on.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
