package onhost

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

func answerBytes(t testing.TB, encoding string) []byte {
	t.Helper()
	var out bytes.Buffer
	e := Envelope{V: Protocol, Verb: "slotcheck", Rows: []report.Row{{State: report.Pass, Check: "c", Detail: "odd \x1b\xff\n detail"}}}
	if err := writeAnswer(&out, e, encoding, 0, nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestAnswerComesBack(t *testing.T) {
	for _, encoding := range []string{"", Packed} {
		e, err := readAnswer(append([]byte("Welcome to this host\n"), answerBytes(t, encoding)...), encoding)
		if err != nil || e.Verb != "slotcheck" || len(e.Rows) != 1 {
			t.Errorf("%q: %+v, %v", encoding, e, err)
		}
	}
}

func TestB49EveryCutOrChangedAnswerIsNone(t *testing.T) {
	for _, encoding := range []string{"", Packed} {
		whole := answerBytes(t, encoding)
		for n := range len(whole) {
			if _, err := readAnswer(whole[:n], encoding); err == nil {
				t.Fatalf("%q: cut at %d of %d and still an answer", encoding, n, len(whole))
			}
			changed := bytes.Clone(whole)
			changed[n] ^= 1
			if _, err := readAnswer(changed, encoding); err == nil {
				t.Fatalf("%q: byte %d changed and still an answer:\n%s", encoding, n, changed)
			}
		}
		if _, err := readAnswer(append(whole, "---Output truncated---"...), encoding); err == nil {
			t.Fatal("text behind the trailer and still an answer")
		}
	}
}

func TestRequestStopsAtItsLine(t *testing.T) {
	line, err := requestLine(Request{V: Protocol, Verb: "deploy", Host: hosts.Host{Name: "lab"}, Body: true})
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(string(line)+"rest")), 16)
	req, err := readRequest(r)
	if err != nil || req.Verb != "deploy" || req.Host.Name != "lab" {
		t.Fatalf("%+v, %v", req, err)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "rest" {
		t.Errorf("the request took %q of what follows", rest)
	}
}

func TestBadRequests(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "ended before its line",
		`{"v":1}`:                          "ended before its line",
		"{\n":                              "not readable",
		`{"v":2}` + "\n":                   "speaks protocol 2",
		strings.Repeat(" ", maxRequest+10): "longer than",
	} {
		_, err := readRequest(bufio.NewReader(strings.NewReader(in)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", in, err, want)
		}
	}
}

func TestFramesComeBack(t *testing.T) {
	for _, size := range []int{0, 1, 1000, 64 << 10, 64<<10 + 1, 300_000} {
		body := bytes.Repeat([]byte("x"), size)
		in := io.MultiReader(&framer{body: bytes.NewReader(body)}, strings.NewReader("lease"))
		var out bytes.Buffer
		if err := copyFrames(&out, in); err != nil || out.Len() != size {
			t.Fatalf("%d bytes: %d came, %v", size, out.Len(), err)
		}
		if rest, _ := io.ReadAll(in); string(rest) != "lease" {
			t.Errorf("%d bytes: behind the frames stands %q", size, rest)
		}
	}
}

func TestFramesThatEndEarlyAreAnError(t *testing.T) {
	whole, err := io.ReadAll(&framer{body: strings.NewReader("some payload")})
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if err := copyFrames(io.Discard, bytes.NewReader(whole[:n])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	if err := copyFrames(io.Discard, strings.NewReader("\xff\xff\xff\xffx")); err == nil {
		t.Error("a frame of 4 GiB was taken")
	}
}

func TestFramesOfAFailingBodyHaveNoEnd(t *testing.T) {
	failed := make(chan error, 1)
	broken := io.MultiReader(strings.NewReader("part"), iotest.ErrReader(errors.New("disk gone")))
	sent, err := io.ReadAll(&framer{body: broken, failed: failed})
	if err == nil || <-failed == nil {
		t.Fatal("the body's error is lost")
	}
	if err := copyFrames(io.Discard, bytes.NewReader(sent)); err == nil {
		t.Error("half a body looks like a whole one")
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add(answerBytes(f, ""), "")
	f.Add(answerBytes(f, Packed), Packed)
	f.Add([]byte("x\nagentworks-deploy-answer -5 00\n"), "")
	f.Fuzz(func(t *testing.T, output []byte, encoding string) {
		e, err := readAnswer(output, encoding)
		if err == nil && e.V != Protocol {
			t.Errorf("an answer of protocol %d", e.V)
		}
	})
}

func FuzzReadRequest(f *testing.F) {
	f.Add([]byte(`{"v":1,"verb":"slotcheck","host":{"name":"lab"}}` + "\n"))
	f.Add([]byte("{\"v\":1,\"body\":true}\n\x00\x00\x00\x01x\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		req, err := readRequest(r)
		if err != nil {
			return
		}
		if req.V != Protocol {
			t.Errorf("a request of protocol %d", req.V)
		}
		if req.Body {
			_ = copyFrames(io.Discard, r)
		}
	})
}

// readAnswer reads an answer that came as a whole.
func readAnswer(output []byte, encoding string) (Envelope, error) {
	f, err := findAnswer(output)
	if err == nil && f.kept != "" {
		err = errors.New("the answer was kept")
	}
	if err != nil {
		return Envelope{}, err
	}
	return f.read(encoding)
}
