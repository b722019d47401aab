package onhost

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// TestMain makes this test program an on-host half as well, so that leases,
// orphans and uploads are tried with real processes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "on-host" {
		os.Exit(half(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func half(args []string) int {
	switch {
	case len(args) > 0 && args[0] == "--protocol":
		fmt.Println(Protocol)
		return 0
	}
	flags := flag.NewFlagSet("on-host", flag.ContinueOnError)
	uploaded, body := flags.String("uploaded", "", ""), flags.String("body", "", "")
	if flags.Parse(args) != nil {
		return 2
	}
	self, _ := os.Executable()
	opened, err := Settle(self, *uploaded, *body)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 98
	}
	if err := AdoptOrphans(); err != nil {
		return 99
	}
	s := testServer()
	s.EndChildren = endChildren
	if opened != nil {
		s.Body = opened
	}
	return s.Serve(context.Background(), os.Stdin, os.Stdout, os.Stderr)
}

func testServer() Server {
	rows := func(rows ...report.Row) func(context.Context, *Session) ([]report.Row, error) {
		return func(context.Context, *Session) ([]report.Row, error) { return rows, nil }
	}
	return Server{
		Version:   "test",
		IDs:       func() (int, int) { return 0, 0 },
		Groups:    func() ([]int, error) { return []int{1234}, nil },
		ServiceID: func(context.Context, string) (int, error) { return 1234, nil },
		Lock: func(context.Context, hosts.Layout, string, time.Duration) (func() error, error) {
			return func() error { return nil }, nil
		},
		EndChildren: func() {},
		Verbs: map[string]Verb{
			"pass":    {Role: remote.Admin, Run: rows(report.Row{State: report.Pass})},
			"fail":    {Role: remote.Admin, Run: rows(report.Row{State: report.Fail}, report.Row{State: report.Error})},
			"error":   {Role: remote.Admin, Run: rows(report.Row{State: report.Error})},
			"service": {Role: remote.Service, Run: rows()},
			"locked":  {Role: remote.Admin, Lock: true, Run: rows()},
			"half-way": {Role: remote.Admin, Run: func(context.Context, *Session) ([]report.Row, error) {
				return []report.Row{{State: report.Changed, Check: "one"}}, report.Coded(report.ExitState, "slot01 is held")
			}},
			"panic": {Role: remote.Admin, Run: func(context.Context, *Session) ([]report.Row, error) { panic("oh") }},
			"big":   {Role: remote.Admin, Run: rows(bigRows()...)},
			"count": {Role: remote.Admin, Run: func(_ context.Context, s *Session) ([]report.Row, error) {
				n, err := io.Copy(io.Discard, s.Body)
				s.Data = n
				return nil, err
			}},
			"polite": {Role: remote.Admin, Run: func(ctx context.Context, s *Session) ([]report.Row, error) {
				fmt.Fprintln(s.Log, "waiting")
				<-ctx.Done()
				return nil, ctx.Err()
			}},
			// Deaf to its context, blocked in a child that has a child of its own
			// and ignores TERM.
			"blocked": {Role: remote.Admin, Run: func(_ context.Context, s *Session) ([]report.Row, error) {
				cmd := exec.Command("/bin/sh", "-c", "trap '' TERM HUP; sleep 300 & echo $!; wait")
				cmd.Stdout = s.Log
				return nil, cmd.Run()
			}},
		},
	}
}

// ask serves one request whose caller stays until the answer is there.
func ask(t *testing.T, s Server, req Request, body string) (Envelope, int) {
	t.Helper()
	req.V = Protocol
	line, err := requestLine(req)
	if err != nil {
		t.Fatal(err)
	}
	in, caller := io.Pipe()
	go func() {
		_, _ = caller.Write(line)
		if req.Body {
			_, _ = io.Copy(caller, &framer{body: strings.NewReader(body)})
		}
	}()
	defer caller.Close()
	var out bytes.Buffer
	code := s.Serve(t.Context(), in, &out, io.Discard)
	e, err := readAnswer(out.Bytes(), req.Encoding)
	if err != nil {
		t.Fatal(err)
	}
	if e.Exit != code {
		t.Errorf("the envelope says %d, the half ended with %d", e.Exit, code)
	}
	return e, code
}

func TestServeAnswersWithRowsAndCode(t *testing.T) {
	for _, c := range []struct {
		verb string
		code int
		text string
	}{
		{"pass", 0, ""},
		{"fail", 1, ""},
		{"error", 3, ""},
		{"half-way", 1, "slot01 is held"},
		{"panic", 3, "internal fault: oh"},
		{"unheard-of", 3, `does not know "unheard-of"`},
		{"service", 2, "not the service account: this verb needs to run as vs (uid 1234), and it came in as uid 0"},
	} {
		e, code := ask(t, testServer(), Request{Verb: c.verb, Host: hosts.Host{Product: "vs"}}, "")
		if code != c.code || !strings.Contains(e.Error, c.text) || (c.text == "") != (e.Error == "") {
			t.Errorf("%s: %d %q, want %d %q", c.verb, code, e.Error, c.code, c.text)
		}
	}
}

func TestB55TheRunningAccountIsProved(t *testing.T) {
	s := testServer()
	s.IDs = func() (int, int) { return 1234, 1234 }
	if e, code := ask(t, s, Request{Verb: "pass"}, ""); code != report.ExitUsage || !strings.Contains(e.Error, "not root") {
		t.Errorf("an admin verb as uid 1234: %d %q", code, e.Error)
	}
	if e, code := ask(t, s, Request{Verb: "service"}, ""); code != report.ExitOK {
		t.Errorf("a service verb as the service: %d %q", code, e.Error)
	}
	s.Groups = func() ([]int, error) { return []int{1234, 0}, nil }
	if e, code := ask(t, s, Request{Verb: "service"}, ""); code != report.ExitUsage || !strings.Contains(e.Error, "root's group") {
		t.Errorf("a service verb that kept root's group: %d %q", code, e.Error)
	}
	s.IDs = func() (int, int) { return 1234, 0 }
	if _, code := ask(t, s, Request{Verb: "pass"}, ""); code != report.ExitUsage {
		t.Errorf("a setuid half: %d", code)
	}
}

func TestLockIsTakenButNotForAPlan(t *testing.T) {
	s := testServer()
	s.Lock = func(context.Context, hosts.Layout, string, time.Duration) (func() error, error) {
		return nil, report.Coded(report.ExitLocked, "provision (pid 7) is at work")
	}
	if e, code := ask(t, s, Request{Verb: "locked"}, ""); code != report.ExitLocked || !strings.Contains(e.Error, "pid 7") {
		t.Errorf("%d %q", code, e.Error)
	}
	if _, code := ask(t, s, Request{Verb: "locked", Plan: true}, ""); code != report.ExitOK {
		t.Errorf("a plan: %d", code)
	}
}

func TestBodyArrives(t *testing.T) {
	e, code := ask(t, testServer(), Request{Verb: "count", Body: true, Encoding: Packed}, strings.Repeat("x", 500_000))
	if code != 0 || string(e.Data) != "500000" {
		t.Errorf("%d, %s of 500000 bytes: %s", code, e.Data, e.Error)
	}
	// A verb that does not read its body is not stuck on it.
	if _, code := ask(t, testServer(), Request{Verb: "pass", Body: true}, strings.Repeat("x", 500_000)); code != 0 {
		t.Errorf("unread body: %d", code)
	}
}

// realHalf starts this test program as a half and returns its two ends.
func realHalf(t *testing.T, req Request) (cmd *exec.Cmd, stdin *os.File, log *bufio.Reader) {
	t.Helper()
	cmd = exec.Command("/proc/self/exe", "on-host")
	theirs, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = theirs
	defer theirs.Close()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	req.V = Protocol
	line, err := requestLine(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stdin.Write(line); err != nil {
		t.Fatal(err)
	}
	return cmd, stdin, bufio.NewReader(stderr)
}

// endsWithin waits for cmd's end; the bound is the promise of the protocol.
func endsWithin(t *testing.T, cmd *exec.Cmd, d time.Duration) int {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
		return cmd.ProcessState.ExitCode()
	case <-time.After(d):
		t.Fatalf("the half still runs %s after it lost its caller", d)
		return 0
	}
}

func TestLostCallerEndsTheHalfWithin5s(t *testing.T) {
	for _, verb := range []string{"polite", "blocked"} {
		cmd, stdin, log := realHalf(t, Request{Verb: verb})
		first, err := log.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		stdin.Close()
		if code := endsWithin(t, cmd, 5*time.Second); code != report.ExitUnfinished {
			t.Errorf("%s: ended with %d", verb, code)
		}
		if verb == "blocked" {
			pid, err := strconv.Atoi(strings.TrimSpace(first))
			if err != nil {
				t.Fatal(err)
			}
			if syscall.Kill(pid, 0) == nil && !zombie(pid) {
				t.Errorf("%s: its grandchild %d is still alive", verb, pid)
			}
		}
	}
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

// The caller goes while its frames still fill the pipe and nobody reads them.
func TestLostCallerIsSeenBehindUnreadFrames(t *testing.T) {
	cmd, stdin, log := realHalf(t, Request{Verb: "polite", Body: true})
	if _, err := log.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := stdin.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(stdin, &framer{body: bytes.NewReader(make([]byte, 4<<20))})
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the pipe took everything: %v", err)
	}
	stdin.Close()
	if code := endsWithin(t, cmd, 5*time.Second); code != report.ExitUnfinished {
		t.Errorf("ended with %d", code)
	}
}

func TestSignalledHalfEndsWithin5s(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, caller := io.Pipe()
	defer caller.Close()
	go func() {
		line, _ := requestLine(Request{V: Protocol, Verb: "polite"})
		_, _ = caller.Write(line)
	}()
	log, logged := io.Pipe()
	go func() {
		_, _ = bufio.NewReader(log).ReadString('\n')
		cancel()
		_, _ = io.Copy(io.Discard, log)
	}()
	if code := testServer().Serve(ctx, in, io.Discard, logged); code != report.ExitInterrupted {
		t.Errorf("ended with %d", code)
	}
}
