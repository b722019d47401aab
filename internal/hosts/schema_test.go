package hosts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
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
