package release

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// find takes the manifest of the release that is asked for from the payload or
// from the host.
func (d *Deploy) find(payload *Payload) (err error) {
	if d.asked.ID == "" {
		if d.m, d.manifest, err = payload.manifest(d.asked.Manifest); err != nil {
			return report.Coded(report.ExitState, "%w", err)
		}
		return nil
	}
	host := d.Preflight.Host.Name
	if IsID(d.asked.ID) {
		d.m, d.manifest, err = d.Store.stored(d.asked.ID)
		if err == nil {
			return nil
		}
		if _, there := os.Lstat(d.Store.dir(d.asked.ID)); !errors.Is(there, fs.ErrNotExist) {
			return report.Coded(report.ExitState, "release %s on %s cannot be told whole: %w; nothing was changed; deploy its folder or tar", d.asked.ID, host, err)
		}
	}
	has, err := d.Store.newestFirst()
	if err != nil {
		return report.Coded(report.ExitUsage, "unknown release %s on %s: %w", d.asked.ID, host, err)
	}
	switch {
	case len(has) == 0:
		has = []string{"none"}
	case len(has) > maxNamed:
		has = append(has[:maxNamed], fmt.Sprintf("and %d older", len(has)-maxNamed))
	}
	return report.Coded(report.ExitUsage, "unknown release %s: %s has %s", d.asked.ID, host, strings.Join(has, ", "))
}

// maxNamed is how many releases a message names.
const maxNamed = 10

// stored is the manifest of the release id as it lies on the host.
func (s *Store) stored(id string) (*Manifest, []byte, error) {
	b, err := safefs.ReadFile(filepath.Join(s.dir(id), manifestName), maxManifest)
	if err != nil {
		return nil, nil, err
	}
	m, err := parseManifest(b)
	if err == nil && m.ID != id {
		err = fmt.Errorf("manifest: it is that of %s", m.ID)
	}
	if err != nil {
		return nil, nil, err
	}
	return m, b, nil
}

// newestFirst lists the releases by their last activation; those that never had
// one come last.
func (s *Store) newestFirst() ([]string, error) {
	ids, err := s.releases()
	if err != nil {
		return nil, err
	}
	h, err := readHistory(s.Layout.App)
	if err != nil {
		return nil, err
	}
	last := map[string]int{}
	for _, e := range h.Deploys {
		last[e.ID] = e.Seq
	}
	slices.SortStableFunc(ids, func(a, b string) int { return cmp.Compare(last[b], last[a]) })
	return ids, nil
}

// whole refuses a release of the host that is not, byte for byte, the one that
// its manifest lists and that was live under its id (case R-09).
func (d *Deploy) whole() error {
	wrong := d.look.Broken
	if e, ok := d.history.of(d.m.ID); ok && e.Manifest != Digest(d.manifest) {
		wrong = errors.New("its manifest is not the one that it went live with")
	}
	if wrong == nil && d.look.Present {
		return nil
	}
	if wrong == nil {
		wrong = fs.ErrNotExist
	}
	return report.Coded(report.ExitState, "release %s on %s is not whole: %w; nothing was changed; deploy its folder or tar", d.m.ID, d.Preflight.Host.Name, wrong)
}

// meant makes a release of the host the one that is deployed where it has the
// content of the payload's, whose build gave it no id: the times of its files say
// when it was written, not what it is. The live one comes first, then the newest.
func (d *Deploy) meant() error {
	if _, err := os.Lstat(d.Store.dir(d.m.ID)); err == nil {
		return nil
	}
	ids, err := d.Store.newestFirst()
	if err != nil {
		return err
	}
	content := d.m.contentHash()
	for _, id := range append([]string{d.before}, ids...) {
		if !d.m.alike(id) {
			continue
		}
		m, manifest, err := d.Store.stored(id)
		if err == nil && m.contentHash() == content {
			d.row(report.Info, "release", "this build has the content of %s, which is on the host: that one is meant", id)
			d.m, d.manifest = m, manifest
			return nil
		}
	}
	return nil
}

// alike tells whether id is one of m's product and, as far as an id says it, of
// m's content.
func (m *Manifest) alike(id string) bool {
	one, two := idPattern.FindStringSubmatch(m.ID), idPattern.FindStringSubmatch(id)
	return one != nil && two != nil && one[1] == two[1] && one[2] == two[2]
}
