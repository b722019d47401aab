package hosts

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// schema is as much of JSON Schema as host files need.
type schema struct {
	Schema     string            `json:"$schema,omitempty"`
	Title      string            `json:"title,omitempty"`
	Type       string            `json:"type,omitempty"`
	Properties map[string]schema `json:"properties,omitempty"`
	Required   []string          `json:"required,omitempty"`
	// Needs says which members another one wants beside it.
	Needs   map[string][]string `json:"dependentRequired,omitempty"`
	Others  *bool               `json:"additionalProperties,omitempty"`
	Least   int                 `json:"minProperties,omitempty"`
	Most    int                 `json:"maxProperties,omitempty"`
	Items   *schema             `json:"items,omitempty"`
	Enum    []string            `json:"enum,omitempty"`
	Pattern string              `json:"pattern,omitempty"`
	Not     *schema             `json:"not,omitempty"`
	Low     *int                `json:"minimum,omitempty"`
	High    *int                `json:"maximum,omitempty"`
	Default any                 `json:"default,omitempty"`
}

// Schema is the JSON Schema of host files, for editors. It is made of the same
// types that a file is read into and the same bounds that its values are held
// against. What only loading can judge is left to it: whatever the schema
// refuses, loading refuses as well, save that loading takes a key without a value
// for an empty one.
func Schema() ([]byte, error) {
	defaults := Defaults()
	s := schemaOf(reflect.ValueOf(defaults))
	s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", "a host of agentworks-deploy"
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(s)
	return out.Bytes(), err
}

// schemaOf describes v, whose values are the defaults.
func schemaOf(v reflect.Value) schema {
	switch v.Kind() {
	case reflect.Pointer:
		return schemaOf(reflect.New(v.Type().Elem()).Elem())
	case reflect.Slice:
		return schema{Type: "array", Items: &schema{Type: "string"}}
	case reflect.Int:
		return schema{Type: "integer", Default: given(v)}
	case reflect.Bool:
		return schema{Type: "boolean", Default: given(v)}
	case reflect.String:
		return schema{Type: "string", Default: given(v)}
	}
	no := false
	s := schema{Type: "object", Properties: map[string]schema{}, Others: &no}
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name := tag.Get("yaml")
		if name == "-" {
			continue
		}
		b := boundsOf(tag)
		s.Properties[name] = bounded(schemaOf(v.Field(i)), b)
		if b.must {
			s.Required = append(s.Required, name)
		}
		if b.needs != "" {
			if s.Needs == nil {
				s.Needs = map[string][]string{}
			}
			s.Needs[name] = []string{b.needs}
		}
	}
	if v.Type() == reflect.TypeFor[Channel]() {
		s.Least, s.Most = 1, 1
	}
	return s
}

// bounded adds the bounds of a field to its schema.
func bounded(s schema, b bounds) schema {
	s.Enum = b.words
	if b.ranged {
		s.Low, s.High = &b.low, &b.high
	}
	if b.never != nil {
		s.Not = &schema{Enum: b.never}
	}
	switch {
	case b.rule == nil:
	case s.Items != nil:
		s.Items.Pattern = b.rule.text
	case b.empty:
		s.Pattern = "^$|" + b.rule.text
	default:
		s.Pattern = b.rule.text
	}
	return s
}

func given(v reflect.Value) any {
	if v.IsZero() {
		return nil
	}
	return v.Interface()
}
