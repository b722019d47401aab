package onhost

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// Verb is the host's side of one verb. Run answers with rows; an error it
// returns carries its exit code (report.Coded) and ends up in the envelope
// beside the rows found so far. Without an error the code is report.Verdict.
type Verb struct {
	Role remote.Role // the account it must run as; the server proves it first
	// Lock is set for root verbs that change the host: they run one at a time,
	// under the product's lock in /run. A plan takes no lock, it changes nothing.
	Lock bool
	// LockWait is how long it waits for that lock; 0: two administrators at once
	// is something to be told at once.
	LockWait time.Duration
	// Upload says that the operator's own program is sent where the host has
	// no copy of it; else the verb runs with what is installed.
	Upload bool
	// Stream says that the verb passes a program's output through while it runs:
	// Session.Stdout and Session.Stderr.
	Stream bool
	// Parting says that the answer counts also for a caller who was interrupted
	// and waits for the half's end: it says what the host was left with.
	Parting bool
	Run     func(ctx context.Context, s *Session) ([]report.Row, error)
}

// Session is what a verb sees of its caller. The context given to Run ends
// when the caller is gone.
type Session struct {
	Request Request
	Body    io.Reader // the frames' payload; empty without Request.Body
	Log     io.Writer // progress lines for the person, the caller's standard error
	// Stdout and Stderr reach the caller's own streams; nil without Verb.Stream.
	Stdout, Stderr io.Writer
	Data           any // set by the verb: goes into Envelope.Data as JSON

	output spool // what Stdout and Stderr got where there is no stream for it
}

// Args reads the request's arguments into args, a pointer to a struct.
func (s *Session) Args(args any) error {
	if len(s.Request.Args) == 0 {
		return nil
	}
	if err := json.Unmarshal(s.Request.Args, args); err != nil {
		return report.Coded(report.ExitUnfinished, "read the arguments of %s: %w", s.Request.Verb, err)
	}
	return nil
}
