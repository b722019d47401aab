package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/slots"
)

// configLimit bounds slotctl.json.
const configLimit = 1 << 20

// slotctlConfig writes the allow-list. What an administrator switched on and
// keys of newer programs stay (case P-10).
func (r *run) slotctlConfig(context.Context) (findings, error) {
	have, err := r.sys.read(r.l.SlotctlConfig(), configLimit)
	if err != nil {
		return findings{}, err
	}
	want, replaced := r.config(have)
	f, err := r.files(nil, []file{rootFile(r.l.SlotctlConfig(), 0o644, want)})
	if err != nil {
		return f, err
	}
	if replaced && len(f.list) > 0 {
		f.notes = append(f.notes, report.Row{State: report.Warn, Check: "slotctl-config",
			Detail: fmt.Sprintf("%s was not JSON: what an administrator had set in it is lost, slot_docker is false", r.l.SlotctlConfig())})
	}
	write := f.apply
	f.apply = func(ctx context.Context) error {
		if err := write(ctx); err != nil {
			return err
		}
		return r.proveConfig()
	}
	return f, nil
}

// setting is one key of slotctl.json.
type setting struct {
	key   string
	value any
}

// ownSettings are the keys that provisioning decides, in the order of a new
// file. docs_root and allowed_cwd come from one value (case P-01).
func (r *run) ownSettings() []setting {
	return []setting{
		{"slot_prefix", r.l.Prefix},
		{"allowed_exec", []string{r.l.LauncherGlob(), "/usr/bin/tmux", "/usr/bin/chmod"}},
		{"allowed_cwd", []string{r.l.Docs, r.l.SlotsRoot()}},
		{"slot_run_root", r.l.SlotRuns()},
		{"slot_state_root", r.l.SlotStates()},
		{"docs_root", r.l.Docs},
		{"slot_table", r.l.SlotTable()},
	}
}

// config is have with our keys set. Without usable content it is a new one, and
// replaced says so where there was something.
func (r *run) config(have []byte) (want []byte, replaced bool) {
	object, err := parseObject(have)
	if err != nil {
		replaced = len(bytes.TrimSpace(have)) > 0
		object = &jsonObject{}
	}
	if object.values == nil {
		object.values = map[string]json.RawMessage{}
	}
	own := r.ownSettings()
	// slotctl's own default is written only over another number.
	_, set := object.values["max_commands"]
	if n := r.Host.Slots.MaxCommands; n != 0 && (set || n != slots.DefaultMaxCommands) {
		own = append(own, setting{"max_commands", n})
	}
	same := !replaced && len(have) > 0
	for i, s := range own {
		same = object.set(s.key, s.value) && same
		if i == 0 {
			if _, ok := object.values["slot_docker"]; !ok {
				same = object.set("slot_docker", false) && same
			}
		}
	}
	if same { // an administrator's own layout of the file stays
		return have, false
	}
	return object.encode(), replaced
}

// proveConfig reads the result back as slotctl will.
func (r *run) proveConfig() error {
	data, err := r.sys.read(r.l.SlotctlConfig(), configLimit)
	if err != nil {
		return err
	}
	c, err := slots.ParseConfig(data)
	if err != nil {
		return report.Coded(report.ExitState, "read %s back: %w", r.l.SlotctlConfig(), err)
	}
	if !slices.ContainsFunc(c.AllowedCwd, func(root string) bool { return within(root, c.DocsRoot) }) {
		return report.Coded(report.ExitState, "read %s back: allowed_cwd does not cover docs_root %s", r.l.SlotctlConfig(), c.DocsRoot)
	}
	return nil
}

// jsonObject is a JSON object that keeps the order of its keys and the text of
// the values that nobody sets.
type jsonObject struct {
	keys   []string
	values map[string]json.RawMessage
}

func parseObject(data []byte) (*jsonObject, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	o := &jsonObject{values: map[string]json.RawMessage{}}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := t.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if _, twice := o.values[key]; !twice {
			o.keys = append(o.keys, key)
		}
		o.values[key] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one JSON value")
	}
	return o, nil
}

// set gives key the value and says whether it had it already.
func (o *jsonObject) set(key string, value any) bool {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // strings, numbers, booleans and lists of them only
	}
	old, there := o.values[key]
	if !there {
		o.keys = append(o.keys, key)
	}
	var compact bytes.Buffer
	if there && json.Compact(&compact, old) == nil && bytes.Equal(compact.Bytes(), text) {
		return true
	}
	o.values[key] = text
	return false
}

func (o *jsonObject) encode() []byte {
	var line, out bytes.Buffer
	line.WriteByte('{')
	for i, key := range o.keys {
		if i > 0 {
			line.WriteByte(',')
		}
		name, err := json.Marshal(key)
		if err != nil {
			panic(err) // a string
		}
		line.Write(name)
		line.WriteByte(':')
		line.Write(o.values[key])
	}
	line.WriteByte('}')
	if err := json.Indent(&out, line.Bytes(), "", "  "); err != nil {
		panic(err) // every part was JSON
	}
	out.WriteByte('\n')
	return out.Bytes()
}
