package slots

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestC01MalformedRequests(t *testing.T) {
	for name, text := range map[string]string{
		"empty":            ``,
		"white space":      "  \n",
		"cut off":          `{"argv":["/bin/sh"]`,
		"a list":           `[]`,
		"null":             `null`,
		"something behind": `{"argv":["/bin/sh"],"cwd":"/"} x`,
		"two values":       `{"argv":["/bin/sh"]}{}`,
		"unknown field":    `{"argv":["/bin/sh"],"user":"root"}`,
		"other case":       `{"Argv":["/bin/sh"]}`,
		"twice":            `{"argv":["/bin/sh"],"argv":["/bin/ls"]}`,
		"wrong type":       `{"argv":"/bin/sh"}`,
		"number in list":   `{"argv":[1]}`,
		"bad UTF-8":        "{\"argv\":[\"/bin/\xff\"]}",
		"over-long":        `{"argv":["` + strings.Repeat("a", MaxRequest) + `"]}`,
		"over-long tail":   `{}` + strings.Repeat(" ", MaxRequest),
	} {
		if _, err := ReadRequest(strings.NewReader(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestReadRequest(t *testing.T) {
	req, err := ReadRequest(strings.NewReader(`{"argv":["/bin/sh"],"cwd":"/srv","env":["A=b"],"userns":true,"fd3":"{\"x\":\u00e9}"}` + "\n\t "))
	if err != nil {
		t.Fatal(err)
	}
	if req.Argv[0] != "/bin/sh" || req.Cwd != "/srv" || !req.UserNS || req.FD3 == nil || *req.FD3 != `{"x":é}` {
		t.Errorf("read %+v", req)
	}
}

// A channel's stream stays open, so the request must not wait for its end.
func TestReadRequestChannelDoesNotWait(t *testing.T) {
	r, w := io.Pipe()
	go io.WriteString(w, `{"argv":["/bin/sh"],"cwd":"/","channel":true}`+"\n")
	req, err := ReadRequest(r)
	if err != nil || !req.Channel {
		t.Fatalf("%+v, %v", req, err)
	}
}

func TestC02RequestCheck(t *testing.T) {
	ok := Request{Argv: []string{"/bin/sh", "-c", "x"}, Cwd: "/srv/../srv", Env: []string{"A=", "B=c=d"}}
	if err := ok.check(); err != nil {
		t.Errorf("refused: %v", err)
	}
	for name, edit := range map[string]func(*Request){
		"empty argv":      func(r *Request) { r.Argv = nil },
		"relative":        func(r *Request) { r.Argv[0] = "bin/sh" },
		"bare name":       func(r *Request) { r.Argv[0] = "sh" },
		"unclean":         func(r *Request) { r.Argv[0] = "/bin/../bin/sh" },
		"NUL in argument": func(r *Request) { r.Argv[2] = "a\x00b" },
		"NUL in program":  func(r *Request) { r.Argv[0] = "/bin/sh\x00" },
		"no equals sign":  func(r *Request) { r.Env[0] = "A" },
		"no name":         func(r *Request) { r.Env[0] = "=a" },
		"NUL in env":      func(r *Request) { r.Env[0] = "A=\x00" },
		"relative cwd":    func(r *Request) { r.Cwd = "srv" },
		"no cwd":          func(r *Request) { r.Cwd = "" },
		"NUL in cwd":      func(r *Request) { r.Cwd = "/srv\x00" },
	} {
		r := Request{Argv: append([]string{}, ok.Argv...), Cwd: ok.Cwd, Env: append([]string{}, ok.Env...)}
		edit(&r)
		if r.check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzReadRequest(f *testing.F) {
	f.Add([]byte(`{"argv":["/bin/sh"],"cwd":"/srv","env":["A=b"],"userns":true,"fd3":"x"}`))
	f.Add([]byte(`{"argv":["/bin/sh"],"channel":true} rest`))
	f.Add([]byte("{\"fd3\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		req, err := ReadRequest(bytes.NewReader(data))
		if err != nil {
			return
		}
		// What was understood says the same when it is written again.
		text, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ReadRequest(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if (req.check() == nil) != (again.check() == nil) || !utf8.Valid(text) {
			t.Fatalf("%q became %q", data, text)
		}
	})
}
