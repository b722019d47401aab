package slots

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const maxTable = 8 << 20

// Table says which user holds which slot, as slots.json does.
type Table struct {
	bySlot map[string]string
	byUser map[string]string
}

// ParseTable reads the text of a slots.json for the slots of prefix. One key
// that is no slot name, one bad user id or one user with two slots makes the
// whole table invalid: a half-read table would run somebody's command under the
// wrong account.
func ParseTable(data []byte, prefix string) (*Table, error) {
	var top map[string]json.RawMessage // a struct would also take "Slots"
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, fmt.Errorf("parse slot table: %w", err)
	}
	pairs, err := stringPairs(top["slots"])
	if err != nil {
		return nil, fmt.Errorf(`parse slot table: "slots": %w`, err)
	}
	t := &Table{bySlot: map[string]string{}, byUser: map[string]string{}}
	for _, p := range pairs {
		slot, user := p[0], p[1]
		switch {
		case !ValidSlot(prefix, slot):
			return nil, fmt.Errorf("parse slot table: %q is no slot of prefix %q", slot, prefix)
		case t.bySlot[slot] != "":
			return nil, fmt.Errorf("parse slot table: %s stands there twice", slot)
		case !ValidUserID(user):
			return nil, fmt.Errorf("parse slot table: %s holds no valid user id", slot)
		case t.byUser[user] != "":
			return nil, fmt.Errorf("parse slot table: one user holds both %s and %s", t.byUser[user], slot)
		}
		t.bySlot[slot], t.byUser[user] = user, slot
	}
	return t, nil
}

// stringPairs reads a JSON object of strings without losing a repeated key.
func stringPairs(raw json.RawMessage) ([][2]string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("not an object")
	}
	var pairs [][2]string
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		value, err := dec.Token()
		if err != nil {
			return nil, err
		}
		s, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("the value of %q is not a text", key)
		}
		pairs = append(pairs, [2]string{key.(string), s})
	}
	return pairs, nil
}

// ReadTable reads the slot table at file. An error that is fs.ErrNotExist means
// that there is no table.
func ReadTable(file, prefix string) (*Table, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would wait for a writer
	if err != nil {
		return nil, fmt.Errorf("read slot table: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read slot table: %s is not a regular file", file)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxTable+1))
	if err != nil {
		return nil, fmt.Errorf("read slot table: %w", err)
	}
	if len(data) > maxTable {
		return nil, fmt.Errorf("read slot table: %s is longer than %d bytes", file, maxTable)
	}
	return ParseTable(data, prefix)
}

// Slots lists the assigned slots in the order of their numbers.
func (t *Table) Slots() []string {
	names := slices.Collect(maps.Keys(t.bySlot))
	slices.SortFunc(names, CompareSlots)
	return names
}

// CompareSlots orders slot names of one prefix by number: slot99 before slot100.
func CompareSlots(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// User is who holds slot; empty where nobody does.
func (t *Table) User(slot string) string { return t.bySlot[slot] }

// Slot is the slot that user holds; empty where there is none.
func (t *Table) Slot(user string) string { return t.byUser[user] }

// Mode is the slots switch of a service.
type Mode string

// The three positions of AGENTWORKS_SLOTS.
const (
	Off   Mode = "off"
	OptIn Mode = "optin"
	On    Mode = "on"
)

// ParseMode reads AGENTWORKS_SLOTS; anything but on and optin is off.
func ParseMode(s string) Mode {
	switch m := Mode(strings.ToLower(s)); m {
	case On, OptIn:
		return m
	}
	return Off
}

// ErrNoSlot and ErrTable are the two refusals of Resolve. People search for
// these words, so they stay as they are.
var (
	ErrNoSlot = errors.New("no slot yet")
	ErrTable  = errors.New("slot table unavailable")
)

// Resolve turns user into the slot that runs the user's commands; "" is the
// service account. read gives the table (ReadTable). There is no silent way
// back to the service account: a table that is there and cannot be used refuses
// (ErrTable), and so does a user without a slot where every user needs one
// (ErrNoSlot).
func Resolve(mode Mode, user string, read func() (*Table, error)) (string, error) {
	if mode == Off {
		return "", nil
	}
	t, err := read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		t = &Table{}
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrTable, err)
	}
	slot := t.Slot(user)
	if slot == "" && mode == On {
		return "", fmt.Errorf("no account slot for this user: %w", ErrNoSlot)
	}
	return slot, nil
}
