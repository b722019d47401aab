package hosts

import (
	"encoding/json"
	"reflect"
	"strings"
)

// schema is as much of JSON Schema as host files need.
type schema struct {
	Schema     string            `json:"$schema,omitempty"`
	Title      string            `json:"title,omitempty"`
	Type       string            `json:"type"`
	Properties map[string]schema `json:"properties,omitempty"`
	Required   []string          `json:"required,omitempty"`
	Others     *bool             `json:"additionalProperties,omitempty"`
	Least      int               `json:"minProperties,omitempty"`
	Most       int               `json:"maxProperties,omitempty"`
	Items      *schema           `json:"items,omitempty"`
	Enum       []string          `json:"enum,omitempty"`
	Default    any               `json:"default,omitempty"`
}

// Schema is the JSON Schema of host files, for editors. It is made of the same
// types that a file is read into: keys and kinds, the words of the `words` tags,
// the defaults. What only loading can judge is left to it.
func Schema() ([]byte, error) {
	defaults := Defaults()
	s := schemaOf(reflect.ValueOf(defaults))
	s.Schema, s.Title, s.Required = "https://json-schema.org/draft/2020-12/schema", "a host of agentworks-deploy", []string{"product", "channels"}
	out, err := json.MarshalIndent(s, "", "  ")
	return append(out, '\n'), err
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
		member := schemaOf(v.Field(i))
		if words := tag.Get("words"); words != "" {
			member.Enum = strings.Split(words, "|")
		}
		s.Properties[name] = member
	}
	if v.Type() == reflect.TypeFor[Channel]() {
		s.Least, s.Most = 1, 1
	}
	return s
}

func given(v reflect.Value) any {
	if v.IsZero() {
		return nil
	}
	return v.Interface()
}
