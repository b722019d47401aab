package onhost

import (
	"context"
	"io"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// Verb is the host's side of one verb. Run answers with rows; an error it
// returns carries its exit code (report.Coded) and ends up in the envelope
// beside the rows found so far. Without an error the code is report.Verdict.
type Verb struct {
	Role remote.Role // the account it must run as; the server proves it first
	Run  func(ctx context.Context, s *Session) ([]report.Row, error)
}

// Session is what a verb sees of its caller. The context given to Run ends
// when the caller is gone.
type Session struct {
	Request Request
	Body    io.Reader // the frames' payload; empty without Request.Body
	Log     io.Writer // progress lines for the person, the caller's standard error
	Data    any       // set by the verb: goes into Envelope.Data as JSON
}
