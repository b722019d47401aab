package onhost

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

func localChannel(t *testing.T) remote.Channel {
	t.Helper()
	ch, err := remote.Open(&hosts.Host{Channels: hosts.Channels{Admin: hosts.Channel{Local: &hosts.LocalChannel{}}}}, remote.Admin)
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// narrow is a channel whose output is cut.
type narrow struct{ remote.Channel }

func (narrow) OutputLimit() int { return 24_000 }

func (narrow) InputLimit([]string) int { return 8000 }

func testProgram(t *testing.T) *Program {
	t.Helper()
	p, err := NewProgram("/proc/self/exe", "test")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestUploadRunsTheOperatorsProgramAndRemovesIt(t *testing.T) {
	p := testProgram(t)
	folder := filepath.Join(t.TempDir(), "halves")
	for _, verb := range []string{"pass", "count"} {
		var body io.Reader
		if verb == "count" {
			body = strings.NewReader(strings.Repeat("x", 200_000))
		}
		e, err := p.exchange(t.Context(), narrow{localChannel(t)}, p.uploadTo(folder, "half-", "remove"), Request{Verb: verb}, body, io.Discard)
		if err != nil || e.Exit != 0 || e.Version != "test" {
			t.Fatalf("%s: %+v, %v", verb, e, err)
		}
		if verb == "count" && string(e.Data) != "200000" {
			t.Errorf("%s bytes of the body came", e.Data)
		}
		if left, _ := os.ReadDir(folder); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

func TestUploadIsKeptAndReplacesOlderOnes(t *testing.T) {
	p := testProgram(t)
	folder := t.TempDir()
	for _, stale := range []string{"0123abc", ".0123abc.agentworks-new"} {
		if err := os.WriteFile(filepath.Join(folder, stale), []byte("old"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.exchange(t.Context(), localChannel(t), p.uploadTo(folder, "", "keep"), Request{Verb: "pass"}, nil, io.Discard); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 || entries[0].Name() != p.sum {
		t.Fatalf("in the folder: %v, %v", entries, err)
	}
	if info, _ := entries[0].Info(); info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", info.Mode())
	}
	// Now it is found there.
	e, err := p.exchange(t.Context(), localChannel(t), p.run("/nonexistent", filepath.Join(folder, p.sum)), Request{Verb: "fail"}, nil, io.Discard)
	if err != nil || e.Exit != 1 || len(e.Rows) != 2 {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestDamagedUploadIsNotRun(t *testing.T) {
	p := testProgram(t)
	p.sum = strings.Repeat("0", 64)
	folder := t.TempDir()
	_, err := p.exchange(t.Context(), localChannel(t), p.uploadTo(folder, "half-", "remove"), Request{Verb: "pass"}, nil, io.Discard)
	if report.CodeOf(err) != report.ExitUnfinished || !strings.Contains(err.Error(), "arrived changed") {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func script(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "half")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestNoAnswerIsNeverAVerdict(t *testing.T) {
	good := string(answerBytes(t, ""))
	for _, c := range []struct {
		name, half string
		code       int
		text       string
	}{
		{"missing", "", 1, "is not provisioned"},
		{"other protocol", "echo 9", 1, "does not speak protocol 1"},
		{"broken program", "exit 7", 1, "does not speak protocol 1"},
		{"silent", "exit 0", 3, "ended with 0 and no answer"},
		{"says why", "echo 'out of memory' >&2; exit 9", 3, "ended with 9 and no answer: out of memory"},
		{"killed", "kill -9 $$", 3, "ended with 137"},
		{"cut", "printf '%s' '" + good[:len(good)/2] + "'", 3, "it was cut"},
		{"claims a pass, exits 1", "cat <<'END'\n" + good + "END\nexit 1", 3, "exit 0 but ended with 1"},
		{"another verb's", "cat <<'END'\n" + strings.ReplaceAll(good, "x", "x") + "END", 3, `the answer is to "slotcheck"`},
	} {
		candidates := []string{}
		if c.half != "" {
			// The first two speak no protocol; the others do.
			protocol := "[ \"$2\" = --protocol ] && { echo 1; exit 0; }\n"
			if strings.Contains(c.text, "does not speak") {
				protocol = ""
			}
			candidates = append(candidates, script(t, protocol+c.half+"\n"))
		}
		p := testProgram(t)
		verb := "pass"
		if strings.Contains(c.name, "claims") {
			verb = "slotcheck"
		}
		_, err := p.exchange(t.Context(), localChannel(t), p.run(candidates...), Request{Verb: verb, Host: hosts.Host{Name: "lab"}}, nil, io.Discard)
		if report.CodeOf(err) != c.code || err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %d %v, want %d %q", c.name, report.CodeOf(err), err, c.code, c.text)
		}
		if lost := errors.As(err, new(*remote.LostError)); lost != (c.code == report.ExitUnfinished) {
			t.Errorf("%s: the outcome is unknown: %v", c.name, lost)
		}
	}
}

func TestAnotherBuildOfTheSameProtocolIsUsedAndSaidSo(t *testing.T) {
	p := testProgram(t)
	p.sum = strings.Repeat("0", 64) // the operator's is another one
	var log bytes.Buffer
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	e, err := p.exchange(t.Context(), localChannel(t), p.run(self), Request{Verb: "pass"}, nil, &log)
	if err != nil || e.Exit != 0 || !strings.Contains(log.String(), "is another build than this program") {
		t.Errorf("%+v, %v, log %q", e, err, log.String())
	}
}

func TestBodyThatCannotBeReadIsSaidSo(t *testing.T) {
	p := testProgram(t)
	body := io.MultiReader(strings.NewReader("part"), iotest.ErrReader(os.ErrPermission))
	_, err := p.exchange(t.Context(), localChannel(t), p.uploadTo(t.TempDir(), "half-", "remove"), Request{Verb: "count"}, body, io.Discard)
	if report.CodeOf(err) != report.ExitUnfinished || !strings.Contains(err.Error(), "read what is to be sent") {
		t.Errorf("%v", err)
	}
}

func TestInterruptedCallTellsTheHalf(t *testing.T) {
	p := testProgram(t)
	ctx, cancel := context.WithCancel(t.Context())
	log, logged := io.Pipe()
	go func() {
		_, _ = log.Read(make([]byte, 100))
		cancel()
		_, _ = io.Copy(io.Discard, log)
	}()
	begun := time.Now()
	_, err := p.exchange(ctx, localChannel(t), p.uploadTo(t.TempDir(), "half-", "remove"), Request{Verb: "polite"}, nil, logged)
	if err == nil || ctx.Err() == nil || time.Since(begun) > 20*time.Second {
		t.Errorf("%v after %s", err, time.Since(begun))
	}
}

// leaving is a channel whose half answers while its caller is interrupted.
type leaving struct {
	remote.Channel
	said   string
	cancel func()
}

func (l leaving) Run(ctx context.Context, cmd remote.Cmd) (int, error) {
	l.cancel()
	_, _ = io.WriteString(cmd.Stdout, l.said)
	return 0, &remote.LostError{Err: context.Cause(ctx)}
}

// What a deploy left the host with is heard also by who interrupted it; what was
// cut, or of another verb, is not believed.
func TestInterruptedDeployIsHeardToItsEnd(t *testing.T) {
	answer := func(verb string) string {
		var out bytes.Buffer
		e := Envelope{V: Protocol, Version: "test", Verb: verb, Error: "release x is live but unproven", Exit: report.ExitUnfinished}
		if err := writeAnswer(&out, e, "", 0, nil); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for name, c := range map[string]struct {
		verb, said string
		heard      bool
	}{
		"heard":       {"deploy", answer("deploy"), true},
		"cut":         {"deploy", answer("deploy")[:40], false},
		"nothing":     {"deploy", "", false},
		"another's":   {"deploy", answer("slotcheck"), false},
		"changes not": {"slotcheck", answer("slotcheck"), false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := testProgram(t).exchange(ctx, leaving{localChannel(t), c.said, cancel}, plan{argv: []string{"half"}}, Request{Verb: c.verb}, nil, io.Discard)
		if heard := err != nil && err.Error() == "release x is live but unproven"; heard != c.heard {
			t.Errorf("%s: %v", name, err)
		}
		if lost := errors.As(err, new(*remote.LostError)); lost == c.heard {
			t.Errorf("%s: the outcome is unknown: %v", name, lost)
		}
	}
}
