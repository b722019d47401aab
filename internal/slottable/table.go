package slottable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/sandbox/slots"
)

const maxTable = 8 << 20

// table is slots.json as it was read. Keys beside "slots" belong to others and
// are written back as they were (case T-02).
type table struct {
	*slots.Table
	others map[string]json.RawMessage
}

// parseTable reads what slots.ParseTable takes for valid, and nothing else.
func parseTable(data []byte, prefix string) (*table, error) {
	parsed, err := slots.ParseTable(data, prefix)
	if err != nil {
		return nil, err
	}
	t := &table{Table: parsed}
	if err := json.Unmarshal(data, &t.others); err != nil {
		return nil, err
	}
	delete(t.others, "slots")
	return t, nil
}

// with is the text of the table in which slot is held by user; an empty user
// frees it. It is read again before anybody else may read it.
func (t *table) with(prefix, slot, user string) ([]byte, *table, error) {
	held := map[string]string{}
	for _, s := range t.Slots() {
		held[s] = t.User(s)
	}
	held[slot] = user
	if user == "" {
		delete(held, slot)
	}
	text, err := encode(t.others, "slots", held)
	if err != nil {
		return nil, nil, err
	}
	next, err := parseTable(text, prefix)
	return text, next, err
}

// encode is an indented JSON object of others and one more key.
func encode(others map[string]json.RawMessage, key string, value any) ([]byte, error) {
	all := map[string]any{key: value}
	for k, v := range others {
		all[k] = v
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(all)
	return text.Bytes(), err
}

// readTable names host in the next step of its refusals.
func readTable(etc *safefs.Dir, name, prefix, host string) (*table, error) {
	file := path.Join(etc.Path(), name)
	data, err := etc.ReadFile(name, maxTable)
	if errors.Is(err, safefs.ErrNotRegular) || errors.Is(err, unix.ELOOP) {
		return nil, report.Coded(report.ExitState, "%w; next, on the host: look at it, then %s; then agentworks-deploy slots rebuild %s", err, aside(etc, name, file), host)
	}
	if err != nil {
		return nil, err
	}
	t, err := parseTable(data, prefix)
	if err != nil {
		return nil, report.Coded(report.ExitState, "%s is refused as it is: %w; next: agentworks-deploy slots rebuild %s, which goes by the groups of the users' trees", file, err, host)
	}
	return t, nil
}

// aside is the command that makes room at file, which is name in etc: what is in
// a folder is kept.
func aside(etc *safefs.Dir, name, file string) string {
	if st, err := etc.Lstat(name); err == nil && st.IsDir() {
		return "mv " + file + " " + file + ".aside"
	}
	return "rm " + file
}

func (r *run) tableName() string { return path.Base(r.SlotTable()) }

// write puts the table in which slot is held by user in place, says what that
// means, and reads it as the service account does.
func (r *run) write(slot, user, means string) error {
	text, next, err := r.table.with(r.Prefix, slot, user)
	if err != nil {
		return fmt.Errorf("write %s anew: %w", r.SlotTable(), err)
	}
	if r.Plan {
		r.did("slot-table", slot, "%s", means)
		return nil
	}
	// Owner and group stay whatever they are (case T-02); what the service may
	// not read is found below.
	c := safefs.Content{From: bytes.NewReader(text), UID: -1, GID: -1, Mode: tableMode, KeepXattrs: true}
	if err := r.etc.Replace(r.tableName(), c); err != nil {
		return report.Coded(report.ExitState, "the slot table was not written: %w", r.frozen(err))
	}
	r.did("slot-table", slot, "%s", means)
	r.table = next
	return r.readBack(text)
}

// frozen is err, with the way out where ETC or a file in it is one that not even
// root may change.
func (r *run) frozen(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for _, name := range []string{".", r.tableName(), r.historyName()} {
		n, look := r.etc.Open(name)
		if look != nil {
			continue
		}
		frozen, look := n.Frozen()
		n.Close()
		if p := path.Join(r.Etc(), name); look == nil && frozen {
			return report.Coded(report.ExitState, "%w; next, on the host: chattr -i -a %s, and the same again", err, p)
		}
	}
	return err
}

const tableMode = 0o640

// keepReadable is what a run that has nothing to write does to the table: its
// mode is repaired, and the service account must be able to read it.
func (r *run) keepReadable() error {
	n, err := r.etc.Open(r.tableName())
	if err != nil {
		return err
	}
	defer n.Close()
	st, err := n.Stat()
	if err != nil {
		return err
	}
	mode := safefs.Exact(-1, -1, tableMode)
	diff := mode.Diff(st)
	if !r.Plan {
		if diff, err = n.Ensure(mode); err != nil {
			return r.frozen(err)
		}
	}
	if diff != "" {
		r.did("slot-table", "", "%s: %s", r.SlotTable(), diff)
	}
	if r.Plan {
		return nil
	}
	return r.readBack(nil)
}

// readBack wants the service account to read the table: one that it cannot read
// locks every user out (case T-01). It must hold want, unless that is nil.
func (r *run) readBack(want []byte) error {
	got, err := r.readAsService()
	if err == nil && want != nil && !bytes.Equal(got, want) {
		err = errors.New("it holds something else than was written")
	}
	if err != nil {
		return report.Coded(report.ExitState, "the service account %s cannot use the slot table, and every slot user is locked out: %w; next, on the host: chgrp %s %s", r.Product, err, r.Product, r.SlotTable())
	}
	return nil
}

func (r *run) readAsService() ([]byte, error) {
	return readAs(r.service, r.groups(), r.at(r.SlotTable()), maxTable)
}

func (r *run) groups() []int {
	var gids []int
	for _, gid := range r.db.GroupsOf(r.Product) {
		gids = append(gids, int(gid))
	}
	return gids
}
