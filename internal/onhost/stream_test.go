package onhost

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFramesPassStreamsAheadOfTheAnswer(t *testing.T) {
	var wire bytes.Buffer
	f := &frames{w: &wire}
	wire.WriteString("a login shell's words\n")
	big := strings.Repeat("x\x00", maxFrame)
	for _, part := range []struct {
		stream byte
		text   string
	}{{streamOut, "one\x00two\n"}, {streamErr, "{\"v\":1}\n"}, {streamOut, big}, {streamOut, ""}} {
		if n, err := io.WriteString(f.stream(part.stream), part.text); n != len(part.text) || err != nil {
			t.Fatal(n, err)
		}
	}
	f.end()
	io.WriteString(f.stream(streamOut), "too late")
	if err := writeAnswer(&wire, Envelope{V: Protocol, Verb: "x"}, "", 0, nil); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(wire.Bytes()), "in halves": iotest.HalfReader(bytes.NewReader(wire.Bytes()))} {
		var stdout, stderr, answer bytes.Buffer
		if _, err := io.Copy(&demux{stdout: &stdout, stderr: &stderr, answer: &answer}, r); err != nil {
			t.Fatal(name, err)
		}
		if stdout.String() != "one\x00two\n"+big || stderr.String() != "{\"v\":1}\n" {
			t.Errorf("%s: streams of %d and %d bytes", name, stdout.Len(), stderr.Len())
		}
		if e, err := readAnswer(answer.Bytes(), ""); err != nil || e.Verb != "x" {
			t.Errorf("%s: answer %+v, %v", name, e, err)
		}
	}
}

func FuzzDemux(f *testing.F) {
	f.Add([]byte("\x00o\x00\x00\x00\x02hi{\"v\":1}\n"), 3)
	f.Add([]byte("noise\x00e\xff\xff\xff\xffx"), 1)
	f.Fuzz(func(t *testing.T, wire []byte, at int) {
		split := func(cuts ...int) string {
			var stdout, stderr, answer bytes.Buffer
			d := &demux{stdout: &stdout, stderr: &stderr, answer: &answer}
			from := 0
			for _, cut := range append(cuts, len(wire)) {
				if n, err := d.Write(wire[from:cut]); n != cut-from || err != nil {
					t.Fatal(n, err)
				}
				from = cut
			}
			return stdout.String() + "|" + stderr.String() + "|" + answer.String()
		}
		if at < 0 || at > len(wire) {
			return
		}
		if split() != split(at) {
			t.Fatalf("%q cut at %d gives something else", wire, at)
		}
	})
}
