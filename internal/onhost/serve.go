package onhost

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// Verbs is the table of all verbs. Both halves use it: the operator's for the
// role and the upload, the host's to run them.
func Verbs() map[string]Verb {
	return map[string]Verb{
		"admission":     verbAdmission(),
		"deploy":        verbDeploy(),
		"deploy-plan":   verbDeployPlan(),
		"go-live":       verbGoLive(),
		"provision":     verbProvision(),
		"sandbox-run":   verbSandboxRun(),
		"slotcheck":     verbSlotcheck(),
		"slots-assign":  verbSlotsAssign(),
		"slots-release": verbSlotsRelease(),
		"slots-status":  verbSlotsStatus(),
		"slots-rebuild": verbSlotsRebuild(),
	}
}

// grace is how long a verb may take to end by itself once its caller is gone;
// with what follows it stays below the promised 5 s.
const grace = 3 * time.Second

// Server is the host's half. The fields that ask the system are values so that
// tests can stand in for them.
type Server struct {
	Verbs   map[string]Verb
	Version string
	// IDs are the real and effective user id of this process.
	IDs func() (real, effective int)
	// Groups are all groups of this process, the effective one among them.
	Groups func() ([]int, error)
	// ServiceID is the user id of a service account.
	ServiceID func(ctx context.Context, account string) (int, error)
	// Lock takes the lock of root verbs, for which it waits at most wait, and
	// returns its release.
	Lock func(ctx context.Context, layout hosts.Layout, verb string, wait time.Duration) (func() error, error)
	// Body, where it is set, is what came ahead of the request in the place of
	// frames; see Settle.
	Body io.Reader
	// EndChildren kills what this process has started and is left of it.
	EndChildren func()
}

// NewServer is the server of a real host.
func NewServer(version string) Server {
	return Server{
		Verbs:       Verbs(),
		Version:     version,
		IDs:         func() (int, int) { return os.Getuid(), os.Geteuid() },
		Groups:      groups,
		ServiceID:   serviceID,
		Lock:        lockRoot,
		EndChildren: endChildren,
	}
}

var errCallerGone = errors.New("the caller is gone")

// result is what a verb's goroutine answers with.
type result struct {
	rows []report.Row
	err  error
}

// Serve reads one request from in, runs its verb and answers on out. It returns
// the exit code, which is the envelope's. When ctx or the caller's lease ends
// it returns within 5 s, also when the verb does not: the process must end then.
func (s Server) Serve(ctx context.Context, in io.Reader, out, log io.Writer) int {
	ctx, gone := context.WithCancelCause(ctx)
	defer gone(nil)
	reader := bufio.NewReaderSize(in, 64<<10)
	req, err := s.receive(ctx, reader)
	if err != nil {
		code := report.ExitUnfinished
		if ctx.Err() != nil {
			code = stopped(ctx)
		}
		return s.answer(out, log, &Session{Request: req}, result{err: &report.CodedError{Code: code, Err: err}})
	}
	session := &Session{Request: req, Log: log}
	passed := &frames{w: out}
	if req.NoLease {
		passed.w = &session.output
	}
	if s.Verbs[req.Verb].Stream {
		session.Stdout, session.Stderr = passed.stream(streamOut), passed.stream(streamErr)
	}
	session.Body = follow(ctx, reader, in, req, func(err error) {
		if err == io.EOF { // it let go, and how else it could be gone is not told
			gone(errCallerGone)
			return
		}
		gone(fmt.Errorf("%w: %w", errCallerGone, err))
	})

	if s.Body != nil {
		session.Body = s.Body
	}

	done := make(chan result, 1)
	go func() { done <- s.run(ctx, session) }()
	select {
	case r := <-done:
		passed.end()
		return s.answer(out, log, session, r)
	case <-ctx.Done():
	}
	defer s.EndChildren()
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case r := <-done:
		passed.end()
		return s.last(ctx, out, log, session, r)
	case <-late.C:
		fmt.Fprintf(log, "%s: %v, and it does not end by itself: ended\n", req.Verb, context.Cause(ctx))
		return stopped(ctx)
	}
}

// receive waits for the request line, or for ctx's end.
func (s Server) receive(ctx context.Context, r *bufio.Reader) (Request, error) {
	type received struct {
		req Request
		err error
	}
	got := make(chan received, 1)
	go func() {
		req, err := readRequest(r)
		got <- received{req, err}
	}()
	select {
	case g := <-got:
		return g.req, g.err
	case <-ctx.Done():
		return Request{}, context.Cause(ctx)
	}
}

// last answers a caller that may be gone, so it does not wait for the reader.
func (s Server) last(ctx context.Context, out, log io.Writer, session *Session, r result) int {
	code := make(chan int, 1)
	go func() { code <- s.answer(out, log, session, r) }()
	select {
	case c := <-code:
		return c
	case <-time.After(time.Second):
		return stopped(ctx)
	}
}

// stopped is the code of a verb that did not finish: told by a signal, or left
// by its caller.
func stopped(ctx context.Context) int {
	if errors.Is(context.Cause(ctx), errCallerGone) {
		return report.ExitUnfinished
	}
	return report.ExitInterrupted
}

func (s Server) run(ctx context.Context, session *Session) (r result) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(session.Log, "%s\n", debug.Stack())
			r.err = report.Coded(report.ExitUnfinished, "%s: internal fault: %v", session.Request.Verb, p)
		}
	}()
	req := &session.Request
	verb, ok := s.Verbs[req.Verb]
	if !ok {
		return result{err: report.Coded(report.ExitUnfinished, "the half on the host (version %s) does not know %q", s.Version, req.Verb)}
	}
	if err := s.prove(ctx, verb.Role, req.Host.Product); err != nil {
		return result{err: err}
	}
	if verb.Lock && !req.Plan {
		release, err := s.Lock(ctx, req.Host.Layout(), req.Verb, verb.LockWait)
		if err != nil {
			return result{err: err}
		}
		defer func() { r.err = errors.Join(r.err, release()) }()
	}
	rows, err := verb.Run(ctx, session)
	if err != nil && ctx.Err() != nil {
		if cause := context.Cause(ctx); !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", err, cause)
		}
		err = &report.CodedError{Code: stopped(ctx), Err: err}
	}
	return result{rows, err}
}

// prove refuses to work as another account than the verb's (case B55).
func (s Server) prove(ctx context.Context, role remote.Role, product string) error {
	real, effective := s.IDs()
	if real != effective {
		return report.Coded(report.ExitUsage, "the on-host half runs with uid %d and effective uid %d: it wants one account", real, effective)
	}
	if role == remote.Admin {
		if effective != 0 {
			return report.Coded(report.ExitUsage, "not root: this verb needs the admin channel, and it came in as uid %d", effective)
		}
		return nil
	}
	want, err := s.ServiceID(ctx, product)
	if err != nil {
		return err
	}
	if effective != want {
		return report.Coded(report.ExitUsage, "not the service account: this verb needs to run as %s (uid %d), and it came in as uid %d", product, want, effective)
	}
	held, err := s.Groups()
	if err != nil {
		return report.Coded(report.ExitUnfinished, "read the groups of this process: %w", err)
	}
	if slices.Contains(held, 0) {
		return report.Coded(report.ExitUsage, "not only the service account: this verb came in as %s, but with root's group", product)
	}
	return nil
}

func groups() ([]int, error) {
	held, err := os.Getgroups()
	return append(held, os.Getegid()), err
}

func (s Server) answer(out, log io.Writer, session *Session, r result) int {
	req := &session.Request
	e := Envelope{V: Protocol, Version: s.Version, Verb: req.Verb, Rows: r.rows, Output: session.output.Bytes(), Exit: report.Verdict(r.rows, false)}
	if session.Data != nil {
		raw, err := json.Marshal(session.Data)
		if err != nil {
			r.err = errors.Join(r.err, fmt.Errorf("write the data of the answer: %w", err))
		}
		e.Data = raw
	}
	if full := session.output.full; full != nil && !errors.Is(r.err, full) {
		r.err = errors.Join(r.err, full) // the command did not mind its closed pipe
	}
	if r.err != nil {
		e.Error, e.Exit = r.err.Error(), report.CodeOf(r.err)
	}
	if err := writeAnswer(out, e, req.Encoding, req.AnswerLimit, keepAnswer); err != nil {
		fmt.Fprintf(log, "%s: write the answer: %v\n", req.Verb, err)
		return report.ExitUnfinished
	}
	return e.Exit
}
