package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"agentworks-deploy/internal/safefs"
)

// HistoryName is the deploy log of a host, beside its releases folder: the one
// order of releases (case B32), whatever their times and folders' mtimes say.
const HistoryName = "deploy.history.json"

// maxHistory bounds what is read: some 50,000 deploys.
const maxHistory = 16 << 20

// Outcome says how far a recorded deploy came.
type Outcome string

// The outcomes. Started stands from just before the switch until the services
// have been judged; where it still stands, that run was cut off.
const (
	Started   Outcome = "started"
	Live      Outcome = "live"
	Unhealthy Outcome = "unhealthy"
)

// Entry is one activation. Seq is strictly increasing on the host; Manifest is
// the hex sha256 of the release's manifest.
type Entry struct {
	Seq      int       `json:"seq"`
	ID       string    `json:"id"`
	Manifest string    `json:"manifest"`
	At       time.Time `json:"at"`
	Outcome  Outcome   `json:"outcome"`
}

// History is deploy.history.json, version 1, oldest first.
type History struct {
	V       int     `json:"v"`
	Deploys []Entry `json:"deploys"`
}

// ParseHistory reads a history; it refuses what is not strictly increasing,
// because the next sequence follows from it.
func ParseHistory(b []byte) (*History, error) {
	if err := noRepeatedKeys(b); err != nil {
		return nil, fmt.Errorf("deploy history: %w", err)
	}
	h := new(History)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(h); err != nil {
		return nil, fmt.Errorf("deploy history: %w", err)
	}
	if h.V != 1 {
		return nil, fmt.Errorf("deploy history: version %d is not 1", h.V)
	}
	last := 0
	for i, e := range h.Deploys {
		if e.Seq <= last || !ValidID(e.ID) {
			return nil, fmt.Errorf("deploy history: entry %d (sequence %d, release %q) is out of order or no release", i, e.Seq, e.ID)
		}
		last = e.Seq
	}
	return h, nil
}

// Last is the newest entry; ok is false where nothing was deployed yet.
func (h *History) Last() (e Entry, ok bool) {
	if len(h.Deploys) == 0 {
		return Entry{}, false
	}
	return h.Deploys[len(h.Deploys)-1], true
}

// begin records that the release id is about to become live. A run that was cut
// off is gone on with under its own sequence.
func (h *History) begin(id, manifest string, now time.Time) {
	last, ok := h.Last()
	if ok && last.ID == id && last.Manifest == manifest && last.Outcome == Started {
		return
	}
	h.Deploys = append(h.Deploys, Entry{Seq: last.Seq + 1, ID: id, Manifest: manifest, At: now.UTC().Truncate(time.Second), Outcome: Started})
}

func (h *History) end(o Outcome) {
	if len(h.Deploys) > 0 {
		h.Deploys[len(h.Deploys)-1].Outcome = o
	}
}

func readHistory(app string) (*History, error) {
	dir, err := safefs.OpenDir(app)
	if err != nil {
		return nil, fmt.Errorf("read deploy history: %w", err)
	}
	defer dir.Close()
	b, err := dir.ReadFile(HistoryName, maxHistory)
	if errors.Is(err, fs.ErrNotExist) {
		return &History{V: 1}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read deploy history: %w", err)
	}
	h, err := ParseHistory(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Join(app, HistoryName), err)
	}
	return h, nil
}

func writeHistory(app string, h *History) error {
	b, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return fmt.Errorf("write deploy history: %w", err)
	}
	dir, err := safefs.OpenDir(app)
	if err != nil {
		return fmt.Errorf("write deploy history: %w", err)
	}
	defer dir.Close()
	if len(h.Deploys) == 0 {
		return dir.Remove(HistoryName)
	}
	if err := dir.Replace(HistoryName, safefs.Content{From: bytes.NewReader(append(b, '\n')), UID: -1, GID: -1, Mode: 0o600}); err != nil {
		return fmt.Errorf("write deploy history: %w", err)
	}
	return nil
}
