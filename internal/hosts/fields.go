package hosts

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// A key is the dotted path of a value in a host file: "slots.count",
// "channels.admin.ssh.host". The schema is the yaml tags of Host; nothing else
// lists the keys.

var stringsType = reflect.TypeFor[[]string]()

// members calls visit for every key of struct v, in the order of the schema.
func members(v reflect.Value, visit func(name string, member reflect.Value)) {
	for i := range v.NumField() {
		if name := v.Type().Field(i).Tag.Get("yaml"); name != "-" {
			visit(name, v.Field(i))
		}
	}
}

// member finds one key of struct v.
func member(v reflect.Value, name string) (reflect.Value, bool) {
	var found reflect.Value
	members(v, func(n string, m reflect.Value) {
		if n == name {
			found = m
		}
	})
	return found, found.IsValid()
}

// unknownKey says that struct v has no key name, and which one it resembles.
func unknownKey(v reflect.Value, name string) string {
	if near := nearest(v, name); near != "" {
		return fmt.Sprintf("unknown key; did you mean %s?", near)
	}
	return "unknown key"
}

// nearest is the key of struct v that name resembles; empty: none.
func nearest(v reflect.Value, name string) string {
	var names []string
	members(v, func(n string, _ reflect.Value) { names = append(names, n) })
	return resembled(name, names)
}

// resembled is the one of names that somebody who wrote name meant; empty: none.
func resembled(name string, names []string) string {
	best, near := 3, "" // more slips than two make another word
	for _, n := range names {
		if d := slips(name, n); d < best && d < len(n) {
			best, near = d, n
		}
	}
	return near
}

// slips counts the letters to put in, take out, change or swap with the next to
// make b of a.
func slips(a, b string) int {
	row := func(i int) []int { r := make([]int, len(b)+1); r[0] = i; return r }
	var before, above []int
	this := row(0)
	for j := range this {
		this[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, this = above, this, row(i)
		for j := 1; j <= len(b); j++ {
			change := above[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			this[j] = min(change, above[j]+1, this[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				this[j] = min(this[j], before[j-2]+1)
			}
		}
	}
	return this[len(b)]
}

// leaves calls visit for every scalar and list below struct v. A channel that
// is not set has no leaves; one without keys of its own (local) is itself one.
func leaves(v reflect.Value, prefix string, visit func(key string, leaf reflect.Value)) {
	members(v, func(name string, m reflect.Value) {
		key := join(prefix, name)
		switch {
		case m.Kind() == reflect.Pointer && m.IsNil():
		case m.Kind() == reflect.Pointer && m.Elem().NumField() == 0:
			visit(key, m)
		case m.Kind() == reflect.Pointer:
			leaves(m.Elem(), key, visit)
		case m.Kind() == reflect.Struct:
			leaves(m, key, visit)
		default:
			visit(key, m)
		}
	})
}

// knownKeys are all keys that a text can set, those of unset channels included.
func knownKeys() []string {
	var h Host
	v := reflect.ValueOf(&h).Elem()
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		members(v, func(_ string, m reflect.Value) {
			if m.Kind() == reflect.Pointer {
				m.Set(reflect.New(m.Type().Elem()))
				m = m.Elem()
			}
			if m.Kind() == reflect.Struct {
				fill(m)
			}
		})
	}
	fill(v)
	var keys []string
	leaves(v, "", func(key string, leaf reflect.Value) {
		if leaf.Kind() != reflect.Pointer {
			keys = append(keys, key)
		}
	})
	return keys
}

// setText sets one key from a word of the environment or the command line; a
// list is separated by commas, and an empty word is an empty list.
func setText(h *Host, key, text string) error {
	v := reflect.ValueOf(h).Elem()
	for name := range strings.SplitSeq(key, ".") {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return fmt.Errorf("unknown key")
		}
		m, ok := member(v, name)
		if !ok {
			return fmt.Errorf("%s", unknownKey(v, name))
		}
		v = m
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("wants a whole number, has %q", text)
		}
		v.SetInt(int64(n))
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("wants true or false, has %q", text)
		}
		v.SetBool(b)
	case v.Type() == stringsType:
		list := []string{}
		if text != "" {
			list = strings.Split(text, ",")
		}
		v.Set(reflect.ValueOf(list))
	default:
		return fmt.Errorf("is a section; name one of its keys")
	}
	return nil
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}
