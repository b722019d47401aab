package hosts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// `agentworks-deploy hosts schema >hosts/schema.json` makes it current.
func TestSchemaFileIsCurrent(t *testing.T) {
	want, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../hosts/schema.json")
	if err != nil || string(got) != string(want) {
		t.Errorf("hosts/schema.json is not current (%v): run agentworks-deploy hosts schema >hosts/schema.json", err)
	}
}

// The schema knows every key that a file may have, and no other.
func TestSchemaHasEveryKey(t *testing.T) {
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var root schema
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	var walk func(s schema, key string)
	walk = func(s schema, key string) {
		for name, p := range s.Properties {
			if p.Type == "object" {
				walk(p, join(key, name))
				continue
			}
			found[join(key, name)] = true
		}
	}
	walk(root, "")
	known := knownKeys()
	for _, key := range known {
		if !found[key] {
			t.Errorf("no %s", key)
		}
	}
	if len(found) != len(known) {
		t.Errorf("%d keys, want %d", len(found), len(known))
	}
}

// Each word of a `words` tag is one that loading takes, and it takes no other.
func TestSchemaWordsAreThoseOfTheCheck(t *testing.T) {
	tags := map[string]string{}
	var walk func(typ reflect.Type, key string)
	walk = func(typ reflect.Type, key string) {
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			at := join(key, f.Tag.Get("yaml"))
			if words := f.Tag.Get("words"); words != "" {
				tags[at] = words
			}
			walk(f.Type, at)
		}
	}
	walk(reflect.TypeFor[Host](), "")
	if len(tags) < 5 {
		t.Fatalf("words of %v", tags)
	}
	file := filepath.Join(t.TempDir(), "h.yaml")
	if err := os.WriteFile(file, []byte("product: pp\nchannels: {admin: {local: {}}, service: {local: {}}}\nlisten: {auth: true}\nslots: {mode: on}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for key, words := range tags {
		for _, word := range append(strings.Split(words, "|"), "another") {
			_, err := Load(filepath.Dir(file), "h", nil, []Setting{{Key: key, Value: word, Flag: "--set"}})
			bad := err != nil && strings.Contains(err.Error(), key)
			if (word == "another") != bad {
				t.Errorf("%s: %q: %v", key, word, err)
			}
		}
	}
}

// Every tag is one that boundsOf understands.
func TestBoundsAreReadFromTheTags(t *testing.T) {
	seen := 0
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			b := boundsOf(f.Tag)
			_, rule := f.Tag.Lookup("rule")
			_, ranged := f.Tag.Lookup("range")
			if rule != (b.rule != nil) || ranged != b.ranged || ranged && b.low >= b.high {
				t.Errorf("%s.%s: %+v of %s", typ.Name(), f.Name, b, f.Tag)
			}
			if _, there := typ.FieldByNameFunc(func(n string) bool { o, _ := typ.FieldByName(n); return o.Tag.Get("yaml") == b.needs }); b.needs != "" && !there {
				t.Errorf("%s.%s needs %q", typ.Name(), f.Name, b.needs)
			}
			if rule || ranged {
				seen++
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[Host]())
	if seen < 30 {
		t.Errorf("%d bounds", seen)
	}
}

// fault is what the schema has against value, as JSON Schema says it.
func (s schema) fault(value any, at string) string {
	switch v := value.(type) {
	case map[string]any:
		if s.Type != "object" || s.Least > 0 && len(v) < s.Least || s.Most > 0 && len(v) > s.Most {
			return at + ": type or number of members"
		}
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				return join(at, name) + ": required"
			}
		}
		for name, others := range s.Needs {
			for _, other := range others {
				_, here := v[name]
				if _, ok := v[other]; here && !ok {
					return join(at, other) + ": dependentRequired"
				}
			}
		}
		for name, member := range v {
			p, ok := s.Properties[name]
			if !ok {
				return join(at, name) + ": additionalProperties"
			}
			if fault := p.fault(member, join(at, name)); fault != "" {
				return fault
			}
		}
	case []any:
		if s.Type != "array" {
			return at + ": type"
		}
		for _, item := range v {
			if fault := s.Items.fault(item, at); fault != "" {
				return fault
			}
		}
	case string:
		if s.Type != "string" || s.Enum != nil && !slices.Contains(s.Enum, v) || s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) || s.Not != nil && slices.Contains(s.Not.Enum, v) {
			return at + ": type, enum, pattern or not"
		}
	case uint64:
		if s.Type != "integer" || s.Low != nil && int(v) < *s.Low || s.High != nil && int(v) > *s.High {
			return at + ": type, minimum or maximum"
		}
	case bool:
		if s.Type != "boolean" {
			return at + ": type"
		}
	default:
		return at + ": type"
	}
	return ""
}

// What the schema refuses is what loading refuses, for the same key.
func TestSchemaRefusesWhatLoadingRefuses(t *testing.T) {
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var root schema
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	const both = "channels: {admin: {local: {}}}"
	const id = "instance: {id: i-0123456789abcdef0}"
	for _, c := range []struct{ text, key string }{ // key: the schema's fault; empty: none
		{"product: vs\n" + both, ""},
		{"product: X Y\n" + both, "product"},
		{"product: root\n" + both, "product"},
		{both, "product"},
		{"product: vs", "channels"},
		{"product: vs\nchannels: {}", "channels.admin"},
		{"product: vs\nchannels: {admin: {}}", "channels.admin"},
		{"product: vs\nchannels: {admin: {ssh: {}}}", "channels.admin.ssh.host"},
		{"product: vs\nchannels: {admin: {ssh: {host: -x}}}", "channels.admin.ssh.host"},
		{"product: vs\nchannels: {admin: {ssh: {host: a, user: ''}}}", ""},
		{"product: vs\nchannels: {admin: {ssh: {host: a, port: 65536}}}", "channels.admin.ssh.port"},
		{"product: vs\nchannels: {admin: {lab: {}}}", "channels.admin.lab.name"},
		{"product: vs\nchannels: {admin: {local: {}, lab: {name: a}}}", "channels.admin"},
		{"product: vs\nchannels: {admin: {ssm: {" + id + "}}}", "channels.admin.ssm.region"},
		{"product: vs\nchannels: {admin: {ssm: {region: us-west-2, " + id + "}}}", ""},
		{"product: vs\nchannels: {admin: {ssm: {region: here, " + id + "}}}", "channels.admin.ssm.region"},
		{"product: vs\nchannels: {admin: {ssm: {region: us-west-2, instance: {stack: a}}}}", "channels.admin.ssm.instance.output"},
		{"product: vs\nchannels: {admin: {ssm: {region: us-west-2, instance: {tag: a}}}}", "channels.admin.ssm.instance.tag"},
		{"product: vs\nslots: {count: 9999}\n" + both, "slots.count"},
		{"product: vs\nslots: {count: 0}\n" + both, "slots.count"},
		{"product: vs\nslots: {count: many}\n" + both, "slots.count"},
		{"product: vs\nslots: {sudo: ''}\n" + both, ""},
		{"product: vs\nslots: {sudo: proxy}\n" + both, "slots.sudo"},
		{"product: vs\nslots: {prefix: a-b}\n" + both, "slots.prefix"},
		{"product: vs\npaths: {app: rel}\n" + both, "paths.app"},
		{"product: vs\nrelease: {health: [localhost]}\n" + both, "release.health"},
		{"product: vs\nrelease: {health: ['http://h/']}\n" + both, ""},
		{"product: vs\nlisten: {address: '8000'}\n" + both, "listen.address"},
		{"product: vs\nlisten: {address: '[::1]:8000'}\n" + both, ""},
		{"product: vs\nretired: [a b]\n" + both, "retired"},
		{"product: vs\nvault: {address: 'https://v/'}\n" + both, "vault.mount"},
		{"product: vs\nvault: {approle: {role_id_file: /a/b}}\n" + both, "vault.approle.secret_id_file"},
	} {
		var doc any
		if err := yaml.Unmarshal([]byte(c.text), &doc); err != nil {
			t.Fatal(err)
		}
		fault := root.fault(doc, "")
		key, _, _ := strings.Cut(fault, ":")
		_, err := Load(write(t, c.text), "x", nil, nil)
		if key != c.key || (err != nil) != (c.key != "") || err != nil && !strings.Contains(err.Error(), c.key) {
			t.Errorf("%q: the schema has %q, want %q; loading %v", c.text, fault, c.key, err)
		}
	}
	for _, name := range []string{"confida", "excellence", "lab", "rts", "sparkquill"} {
		data, err := os.ReadFile("../../hosts/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var doc any
		if err := yaml.Unmarshal(data, &doc); err != nil || root.fault(doc, "") != "" {
			t.Errorf("%s: %v, %s", name, err, root.fault(doc, ""))
		}
	}
}
