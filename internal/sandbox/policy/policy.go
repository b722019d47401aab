// Package policy is the launcher's input: what one command may reach, written
// as one JSON object (see docs/sandbox.md). Whoever builds a policy marshals
// this type; the launcher parses it strictly. The package imports the standard
// library alone, touches no file, and must never learn who writes a policy or
// how it is enforced.
package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxSize is the most a policy may weigh, in bytes of JSON: a launcher reads no
// further.
const MaxSize = 8 << 20

// Policy says what one command may reach. All paths are absolute. A path may be
// a folder (everything below it is meant) or a single file.
type Policy struct {
	// ReadPaths may be read, executed and listed.
	ReadPaths []string `json:"read_paths"`
	// WritePaths get every file right that the kernel's Landlock knows.
	WritePaths []string `json:"write_paths"`
	// ListPaths show names only: `ls` works, `cat` does not.
	ListPaths []string `json:"list_paths"`
	// WorkDir is entered before the command is restricted. Required.
	WorkDir string `json:"work_dir"`
	// PrivateTmp puts an empty tmpfs of the command's own on /tmp (and one on
	// /dev/shm); granted paths below /tmp are bound back into it.
	PrivateTmp bool `json:"private_tmp"`
	// PrivateRoots are covered by an empty tmpfs each; granted paths inside are
	// bound back.
	PrivateRoots []string `json:"private_roots"`
	// HiddenPaths are covered by an empty placeholder of mode 000. A name that
	// does not exist cannot be created.
	HiddenPaths []string `json:"hidden_paths"`
	// ReadOnlyOverlays are blocked for writing inside a write grant. A name that
	// does not exist cannot be created.
	ReadOnlyOverlays []string `json:"read_only_overlays"`
	// BrowserScoped says that the command may drive its own browser at most: no
	// shared browser folder is added.
	BrowserScoped bool `json:"browser_scoped"`
	// PrivatePTS gives the command a devpts instance of its own.
	PrivatePTS bool `json:"private_pts"`
}

// Parse reads one policy. It is stricter than json.Unmarshal: a field that is
// unknown (or spelled in another case), given twice, or of another type is an
// error, and so is anything but white space after the object. A list may be
// null, which is how Go writes an empty one.
func Parse(text []byte) (Policy, error) {
	var p Policy
	if len(text) > MaxSize {
		return p, fmt.Errorf("policy: larger than %d bytes", MaxSize)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := expectDelim(dec, '{'); err != nil {
		return p, err
	}
	seen := make(map[string]bool)
	for dec.More() {
		name, err := fieldName(dec)
		if err != nil {
			return p, err
		}
		if seen[name] {
			return p, fmt.Errorf("policy: field %q is given twice", name)
		}
		seen[name] = true
		if err := p.decodeField(dec, name); err != nil {
			return p, err
		}
	}
	if err := expectDelim(dec, '}'); err != nil {
		return p, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return p, errors.New("policy: more than one JSON object")
	}
	return p, p.Validate()
}

func expectDelim(dec *json.Decoder, want json.Delim) error {
	token, err := dec.Token()
	if err != nil {
		return fmt.Errorf("policy: not a JSON object: %w", err)
	}
	if token != want {
		return fmt.Errorf("policy: not a JSON object: %v where %v belongs", token, want)
	}
	return nil
}

func fieldName(dec *json.Decoder) (string, error) {
	token, err := dec.Token()
	if err != nil {
		return "", fmt.Errorf("policy: not a JSON object: %w", err)
	}
	name, ok := token.(string)
	if !ok {
		return "", fmt.Errorf("policy: %v where a field name belongs", token)
	}
	return name, nil
}

func (p *Policy) decodeField(dec *json.Decoder, name string) error {
	target := p.field(name)
	if target == nil {
		return fmt.Errorf("policy: unknown field %q", name)
	}
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return fmt.Errorf("policy: field %s: %w", name, err)
	}
	list, isList := target.(*[]string)
	if isList {
		return decodeList(raw, name, list)
	}
	// json leaves a string or a bool as it is at null; a switch that is not
	// said must be left out, not null.
	if string(raw) == "null" {
		return fmt.Errorf("policy: field %s: null is no value for it", name)
	}
	if err := json.Unmarshal(raw, target); err != nil {
		return fmt.Errorf("policy: field %s: %w", name, err)
	}
	return nil
}

// decodeList refuses a null inside the list: json would make it an empty string.
func decodeList(raw json.RawMessage, name string, list *[]string) error {
	var items []*string
	if err := json.Unmarshal(raw, &items); err != nil {
		return fmt.Errorf("policy: field %s: %w", name, err)
	}
	for _, item := range items {
		if item == nil {
			return fmt.Errorf("policy: field %s: null is no path", name)
		}
		*list = append(*list, *item)
	}
	return nil
}

func (p *Policy) field(name string) any {
	switch name {
	case "read_paths":
		return &p.ReadPaths
	case "write_paths":
		return &p.WritePaths
	case "list_paths":
		return &p.ListPaths
	case "work_dir":
		return &p.WorkDir
	case "private_tmp":
		return &p.PrivateTmp
	case "private_roots":
		return &p.PrivateRoots
	case "hidden_paths":
		return &p.HiddenPaths
	case "read_only_overlays":
		return &p.ReadOnlyOverlays
	case "browser_scoped":
		return &p.BrowserScoped
	case "private_pts":
		return &p.PrivatePTS
	}
	return nil
}

// Validate says whether every path is one that a launcher could open.
func (p *Policy) Validate() error {
	if p.WorkDir == "" {
		return errors.New("policy: work_dir is required")
	}
	if err := checkPath("work_dir", p.WorkDir); err != nil {
		return err
	}
	lists := []struct {
		name  string
		paths []string
	}{
		{"read_paths", p.ReadPaths},
		{"write_paths", p.WritePaths},
		{"list_paths", p.ListPaths},
		{"private_roots", p.PrivateRoots},
		{"hidden_paths", p.HiddenPaths},
		{"read_only_overlays", p.ReadOnlyOverlays},
	}
	for _, list := range lists {
		for _, path := range list.paths {
			if err := checkPath(list.name, path); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkPath(field, path string) error {
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("policy: field %s: %q is not an absolute path", field, path)
	}
	if strings.IndexByte(path, 0) >= 0 {
		return fmt.Errorf("policy: field %s: %q holds a NUL byte", field, path)
	}
	return nil
}
