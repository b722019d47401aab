package slots

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// MaxRequest is the longest exec request, in bytes of JSON.
const MaxRequest = 8 << 20

// Request is one program to start as a slot; see "Exec request" in
// docs/formats.md. Env is the program's complete environment.
type Request struct {
	Argv   []string `json:"argv"`
	Cwd    string   `json:"cwd"`
	Env    []string `json:"env"`
	UserNS bool     `json:"userns,omitempty"`
	// FD3 is handed over on descriptor 3; nil leaves the descriptor closed.
	FD3 *string `json:"fd3,omitempty"`
	// Channel keeps standard input open for frames after the request.
	Channel bool `json:"channel,omitempty"`
}

// ReadRequest reads one request from r. Without Channel it reads r to its end
// and only white space may follow the value; with Channel it stops reading
// behind the value. Whatever it returns as an error is exit code 125; what a
// well-formed request may not ask for is the business of Request.check.
func ReadRequest(r io.Reader) (*Request, error) {
	limited := &io.LimitedReader{R: r, N: MaxRequest + 1}
	dec := json.NewDecoder(limited)
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		if limited.N <= 0 {
			return nil, fmt.Errorf("longer than %d bytes", MaxRequest)
		}
		if errors.Is(err, io.EOF) {
			return nil, errors.New("empty")
		}
		return nil, err
	}
	req, err := parseRequest(raw)
	if err != nil || req.Channel {
		return req, err
	}
	rest, err := io.ReadAll(io.MultiReader(dec.Buffered(), limited))
	switch {
	case err != nil:
		return nil, err
	case limited.N <= 0:
		return nil, fmt.Errorf("longer than %d bytes", MaxRequest)
	case len(bytes.Trim(rest, " \t\r\n")) > 0:
		return nil, errors.New("more than white space follows the value")
	}
	return req, nil
}

// parseRequest takes field names literally and once, and refuses unknown ones:
// a field that one side believes in and the other skips is how a restriction
// gets lost.
func parseRequest(raw []byte) (*Request, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	req := &Request{}
	fields := map[string]any{
		"argv": &req.Argv, "cwd": &req.Cwd, "env": &req.Env,
		"userns": &req.UserNS, "fd3": &req.FD3, "channel": &req.Channel,
	}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name := tok.(string)
		target, ok := fields[name]
		if !ok {
			return nil, fmt.Errorf("field %q is unknown or stands there twice", name)
		}
		delete(fields, name)
		if err := dec.Decode(target); err != nil {
			return nil, fmt.Errorf("field %q: %w", name, err)
		}
	}
	return req, nil
}

// check refuses what no slot may ask for, before anything of the host is looked
// at (exit 126).
func (r *Request) check() error {
	if len(r.Argv) == 0 {
		return errors.New("argv is empty")
	}
	if !cleanAbs(r.Argv[0]) {
		return fmt.Errorf("%q is not an allowed program: not a clean absolute path", r.Argv[0])
	}
	for i, a := range r.Argv {
		if strings.Contains(a, "\x00") {
			return fmt.Errorf("argument %d holds a NUL byte", i)
		}
	}
	if !strings.HasPrefix(r.Cwd, "/") || strings.Contains(r.Cwd, "\x00") {
		return fmt.Errorf("working folder %q is not absolute", r.Cwd)
	}
	for i, e := range r.Env {
		if strings.IndexByte(e, '=') < 1 || strings.Contains(e, "\x00") {
			// The text is not shown: it may be a secret that lost its name.
			return fmt.Errorf("env entry %d is not NAME=value", i)
		}
	}
	return nil
}
