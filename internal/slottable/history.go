package slottable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// history is the note beside the table, for root alone, of who left which slot:
// {"slots": {"slot01": {"user": "u1", "released": "2026-10-04T12:00:00Z"}}}.
type history struct {
	Slots map[string]departure
}

type departure struct {
	User     string    `json:"user"`
	Released time.Time `json:"released"`
}

const historyMode = 0o600

func (r *run) historyName() string { return path.Base(r.SlotHistory()) }

// parseHistory reads a note; one that cannot be read hides who left a slot as it
// is, so it is refused and not begun anew.
func parseHistory(data []byte) (*history, error) {
	h := &history{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(h); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("more than one JSON value")
	}
	return h, nil
}

func readHistory(etc *safefs.Dir, name string) (*history, error) {
	data, err := etc.ReadFile(name, maxTable)
	if errors.Is(err, fs.ErrNotExist) {
		return &history{}, nil
	}
	if errors.Is(err, safefs.ErrNotRegular) || errors.Is(err, unix.ELOOP) {
		return nil, report.Coded(report.ExitState, "%w; next, on the host: look at it, then %s, which makes every unclean slot a stranger's", err, aside(etc, name, path.Join(etc.Path(), name)))
	}
	if err != nil {
		return nil, err
	}
	h, err := parseHistory(data)
	if err != nil {
		return nil, report.Coded(report.ExitState, "%s cannot be read, so nobody knows who left which slot: %w; mend it, or remove it to treat every unclean slot as a stranger's", path.Join(etc.Path(), name), err)
	}
	return h, nil
}

// last is who held slot before it became free; empty where nobody knows.
func (h *history) last(slot string) string { return h.Slots[slot].User }

// note writes that user leaves slot.
func (r *run) note(slot, user string) error {
	if r.Plan {
		return nil
	}
	if r.history.Slots == nil {
		r.history.Slots = map[string]departure{}
	}
	r.history.Slots[slot] = departure{User: user, Released: r.sys.Now().UTC().Truncate(time.Second)}
	text, err := encode(nil, "slots", r.history.Slots)
	if err != nil {
		return fmt.Errorf("write %s: %w", r.SlotHistory(), err)
	}
	c := safefs.Content{From: bytes.NewReader(text), UID: 0, GID: 0, Mode: historyMode}
	if err := r.etc.Replace(r.historyName(), c); err != nil {
		return report.Coded(report.ExitState, "who held %s was not noted, so it stays held: %w", slot, r.frozen(err))
	}
	return nil
}
