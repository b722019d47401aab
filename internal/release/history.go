package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"agentworks-deploy/internal/safefs"
)

// historyName is the deploy log of a host, beside its releases folder: the one
// order of releases (case B32), whatever their times and folders' mtimes say.
const historyName = "deploy.history.json"

// maxHistory bounds what is read: some 50,000 deploys.
const maxHistory = 16 << 20

// outcome says how far a recorded deploy came.
type outcome string

// The outcomes. Started stands from just before the switch until the services
// have been judged; where it still stands, that run was cut off.
const (
	outcomeStarted   outcome = "started"
	outcomeLive      outcome = "live"
	outcomeUnhealthy outcome = "unhealthy"
)

// record is one activation. Seq is strictly increasing on the host; Manifest is
// the hex sha256 of the release's manifest.
type record struct {
	Seq      int       `json:"seq"`
	ID       string    `json:"id"`
	Manifest string    `json:"manifest"`
	At       time.Time `json:"at"`
	Outcome  outcome   `json:"outcome"`
}

// history is deploy.history.json, version 1, oldest first.
type history struct {
	V       int      `json:"v"`
	Deploys []record `json:"deploys"`
}

// parseHistory reads a history; it refuses what is not strictly increasing,
// because the next sequence follows from it.
func parseHistory(b []byte) (*history, error) {
	if err := noRepeatedKeys(b); err != nil {
		return nil, fmt.Errorf("deploy history: %w", err)
	}
	h := new(history)
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
		if e.Seq <= last || !IsID(e.ID) {
			return nil, fmt.Errorf("deploy history: entry %d (sequence %d, release %q) is out of order or no release", i, e.Seq, e.ID)
		}
		last = e.Seq
	}
	return h, nil
}

// last is the newest entry; ok is false where nothing was deployed yet.
func (h *history) last() (e record, ok bool) {
	if len(h.Deploys) == 0 {
		return record{}, false
	}
	return h.Deploys[len(h.Deploys)-1], true
}

// of is the newest entry of the release id.
func (h *history) of(id string) (e record, ok bool) {
	for _, e := range slices.Backward(h.Deploys) {
		if e.ID == id {
			return e, true
		}
	}
	return record{}, false
}

// before is the newest release but id that was judged; "" where there is none.
func (h *history) before(id string) string {
	for _, e := range slices.Backward(h.Deploys) {
		if e.ID != id && e.Outcome != outcomeStarted {
			return e.ID
		}
	}
	return ""
}

// begin records that the release id is about to become live. A run that was cut
// off is gone on with under its own sequence.
func (h *history) begin(id, manifest string, now time.Time) {
	last, ok := h.last()
	if ok && last.ID == id && last.Manifest == manifest && last.Outcome == outcomeStarted {
		return
	}
	h.Deploys = append(h.Deploys, record{Seq: last.Seq + 1, ID: id, Manifest: manifest, At: now.UTC().Truncate(time.Second), Outcome: outcomeStarted})
}

func (h *history) end(o outcome) {
	if len(h.Deploys) > 0 {
		h.Deploys[len(h.Deploys)-1].Outcome = o
	}
}

func readHistory(app string) (*history, error) {
	dir, err := safefs.OpenDir(app)
	if err != nil {
		return nil, fmt.Errorf("read deploy history: %w", err)
	}
	defer dir.Close()
	b, err := dir.ReadFile(historyName, maxHistory)
	if errors.Is(err, fs.ErrNotExist) {
		return &history{V: 1}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read deploy history: %w", err)
	}
	h, err := parseHistory(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Join(app, historyName), err)
	}
	return h, nil
}

func writeHistory(app string, h *history) error {
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
		return dir.Remove(historyName)
	}
	if err := dir.Replace(historyName, safefs.Content{From: bytes.NewReader(append(b, '\n')), UID: -1, GID: -1, Mode: 0o600}); err != nil {
		return fmt.Errorf("write deploy history: %w", err)
	}
	return nil
}
