// Package release knows what a release is and how one becomes live: its
// manifest, the two halves of its transfer, the modes that let a slot reach its
// launcher, the switch of current, the services' restart and their health. The
// operator's half reads folders and archives; the host's half works as the
// service account alone, so nothing here needs root. It may import accounts, hosts,
// report, safefs and units; channels, verbs and slot programs it must never import, and the
// sandbox runtime must never import it.
package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// manifestName is the manifest's file in a release's top folder; the manifest
// does not list itself.
const manifestName = "manifest.json"

// maxManifest bounds what is parsed: some 400,000 files.
const maxManifest = 64 << 20

// Modes a manifest can give a file. Everything else of a mode is the builder's
// umask and is not part of a release (case B08).
const (
	modeFile    = "0644"
	modeProgram = "0755"
)

// Manifest is manifest.json, version 1, of docs/formats.md. Files and Links are
// keyed by slash paths relative to the release. Glibc is the newest version that
// one of its programs asks for ("2.36"), empty where all are static. BuiltAt is
// UTC in seconds.
type Manifest struct {
	V         int               `json:"v"`
	ID        string            `json:"id"`
	Product   string            `json:"product"`
	OS        string            `json:"os"`
	Arch      string            `json:"arch"`
	Glibc     string            `json:"glibc"`
	BuiltAt   time.Time         `json:"built_at"`
	Revisions map[string]string `json:"revisions"`
	Files     map[string]File   `json:"files"`
	Links     map[string]string `json:"links"`
}

// File is one regular file of a release: hex sha256, size in bytes, and "0644" or,
// for a program, "0755".
type File struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	Mode   string `json:"mode"`
}

var (
	idPattern      = regexp.MustCompile(`^([a-z][a-z0-9-]{0,30})-([0-9a-f]{8})-([0-9]{14})$`)
	productPattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,30}$`)
	shaPattern     = regexp.MustCompile(`^[0-9a-f]{64}$`)
	glibcPattern   = regexp.MustCompile(`^([0-9]{1,3}\.[0-9]{1,3}(\.[0-9]{1,3})?)?$`)
	archPattern    = regexp.MustCompile(`^[a-z0-9]{2,16}$`)
)

// IsID tells whether id has a release id's form; it is then one path segment.
func IsID(id string) bool { return idPattern.MatchString(id) }

// contentHash is the hex sha256 over everything that a release's bytes decide:
// paths, digests, sizes, modes and link targets, in order.
func (m *Manifest) contentHash() string {
	h := sha256.New()
	for _, p := range slices.Sorted(maps.Keys(m.Files)) {
		f := m.Files[p]
		fmt.Fprintf(h, "f %q %s %d %s\n", p, f.SHA256, f.Size, f.Mode)
	}
	for _, p := range slices.Sorted(maps.Keys(m.Links)) {
		fmt.Fprintf(h, "l %q %q\n", p, m.Links[p])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// makeID is the id that follows from product, content and time of m.
func (m *Manifest) makeID() string {
	return fmt.Sprintf("%s-%s-%s", m.Product, m.contentHash()[:8], m.BuiltAt.UTC().Format("20060102150405"))
}

// Encode is the manifest's one spelling, so that its digest can be announced.
func (m *Manifest) Encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode manifest of %s: %w", m.ID, err)
	}
	return append(b, '\n'), nil
}

// size is the number of bytes of all files.
func (m *Manifest) size() int64 {
	var n int64
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// holds tells whether the release has something at p: a file, a link, a folder,
// or what a link of it may lead to.
func (m *Manifest) holds(p string) bool {
	p = path.Clean(p)
	if _, ok := m.Files[p]; ok {
		return true
	}
	for up := p; up != "."; up = path.Dir(up) {
		if _, ok := m.Links[up]; ok {
			return true
		}
	}
	for file := range m.Files {
		if strings.HasPrefix(file, p+"/") {
			return true
		}
	}
	return false
}

// Digest is the hex sha256 of b, the form in which manifests are announced.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// parseManifest reads a manifest that somebody else wrote. It refuses unknown
// or repeated keys, trailing bytes, paths that are not plain or collide, links
// that leave the release, and an id that is not the one of its content.
func parseManifest(b []byte) (*Manifest, error) {
	if len(b) > maxManifest {
		return nil, fmt.Errorf("manifest: larger than %d bytes", maxManifest)
	}
	if err := noRepeatedKeys(b); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	m := new(Manifest)
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

func (m *Manifest) check() error {
	switch {
	case m.V != 1:
		return fmt.Errorf("version %d is not 1", m.V)
	case !productPattern.MatchString(m.Product):
		return fmt.Errorf("product %q is no product name", m.Product)
	case m.OS != "linux":
		return fmt.Errorf("os %q is not linux", m.OS)
	case !archPattern.MatchString(m.Arch):
		return fmt.Errorf("arch %q is no architecture", m.Arch)
	case !glibcPattern.MatchString(m.Glibc):
		return fmt.Errorf("glibc %q is no version", m.Glibc)
	case len(m.Files) == 0:
		return errors.New("it lists no file")
	case m.BuiltAt.Year() < 2000 || m.BuiltAt.Year() > 9999:
		return fmt.Errorf("built_at %s is no build time", m.BuiltAt)
	}
	for p, f := range m.Files {
		switch {
		case !shaPattern.MatchString(f.SHA256):
			return fmt.Errorf("%s: sha256 %q is no digest", p, f.SHA256)
		case f.Size < 0:
			return fmt.Errorf("%s: size %d is negative", p, f.Size)
		case f.Mode != modeFile && f.Mode != modeProgram:
			return fmt.Errorf("%s: mode %q is neither %s nor %s", p, f.Mode, modeFile, modeProgram)
		}
	}
	if _, err := m.names(); err != nil {
		return err
	}
	if want := m.makeID(); m.ID != want {
		return fmt.Errorf("id %q is not %s, which its content and time give", m.ID, want)
	}
	return nil
}

// names collects and checks every path of m.
func (m *Manifest) names() (*names, error) {
	n := newNames()
	for _, p := range slices.Sorted(maps.Keys(m.Files)) {
		if err := n.addFile(p); err != nil {
			return nil, err
		}
	}
	for _, p := range slices.Sorted(maps.Keys(m.Links)) {
		if err := n.addLink(p, m.Links[p]); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// noRepeatedKeys refuses JSON in which an object has one key twice, because two
// readers could then see two releases; and bytes after the document.
func noRepeatedKeys(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if err := walkKeys(d, 0); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("bytes after the document")
	}
	return nil
}

func walkKeys(d *json.Decoder, depth int) error {
	if depth > 8 {
		return errors.New("nested too deeply")
	}
	t, err := d.Token()
	if err != nil {
		return err
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for d.More() {
		if delim == '{' {
			k, err := d.Token()
			if err != nil {
				return err
			}
			key, _ := k.(string)
			if seen[key] {
				return fmt.Errorf("key %q stands twice in one object", key)
			}
			seen[key] = true
		}
		if err := walkKeys(d, depth+1); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}
