package onhost

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
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

// Without a stream the output travels with the answer, and too much of it is
// said, whatever the command ended with.
func TestOutputWithoutAStream(t *testing.T) {
	for _, c := range []struct {
		name        string
		size, piece int
		code        int
	}{
		{"all of it", maxSpool - 1, maxSpool, 0}, {"too much", maxSpool, maxSpool, 3},
		{"all of it bit by bit", maxSpool - 1, 3, 0}, {"too much bit by bit", maxSpool + 100, 3, 3},
	} {
		s := testServer()
		s.Verbs["talk"] = Verb{Role: remote.Admin, Stream: true, Run: func(_ context.Context, s *Session) ([]report.Row, error) {
			_, _ = s.Stderr.Write([]byte("e"))
			for left := c.size; left > 0; {
				n, err := s.Stdout.Write(bytes.Repeat([]byte("o"), min(left, c.piece)))
				if left -= n; err != nil {
					return nil, fmt.Errorf("wait for it: %w", err)
				}
			}
			return nil, nil
		}}
		var out bytes.Buffer
		code := s.Serve(t.Context(), strings.NewReader(`{"v":1,"verb":"talk","encoding":"gzip+base64","no_lease":true}`+"\n"), &out, io.Discard)
		e, err := readAnswer(out.Bytes(), Packed)
		if err != nil || code != c.code || e.Exit != c.code || (c.code != 0) != strings.Contains(e.Error, "printed more than 4 MiB") {
			t.Errorf("%s: exit %d, %q, %v", c.name, code, e.Error, err)
		}
		var stdout, stderr bytes.Buffer
		if _, err := (&demux{stdout: &stdout, stderr: &stderr, answer: io.Discard}).Write(e.Output); err != nil {
			t.Error(err)
		}
		if stdout.Len() != min(c.size, maxSpool-1) || strings.Count(e.Error, "printed more") > 1 || stderr.String() != "e" {
			t.Errorf("%s: %d bytes, %q", c.name, stdout.Len(), stderr.String())
		}
	}
}
