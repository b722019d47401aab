package onhost

import (
	"bytes"
	"context"
	"io"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// Answer is what came of a call on one of many instances: an envelope, an error,
// or both, as from Call.
type Answer struct {
	Instance string
	Envelope Envelope
	Err      error
}

// CallAll is Call on every instance behind ch, in one go. Done gets the answers
// one by one, in the order in which they come; the error is one that concerns
// them all.
func (p *Program) CallAll(ctx context.Context, ch remote.Many, req Request, log io.Writer, done func(Answer)) error {
	verb, ok := Verbs()[req.Verb]
	if !ok {
		return report.Coded(report.ExitUnfinished, "no verb %q", req.Verb)
	}
	if verb.Upload {
		return report.Coded(report.ExitUsage, "%s is for one instance: name one in a host file of its own", req.Verb)
	}
	layout := req.Host.Layout()
	how := p.admin(verb, layout)
	if verb.Role == remote.Service {
		how, _ = p.service(ctx, verb, layout, nil) // asks nothing without an upload
	}
	req.V, req.Version = Protocol, p.Version
	req.Encoding, req.AnswerLimit, req.NoLease = Packed, ch.OutputLimit(), true
	line, err := requestLine(req)
	if err != nil {
		return &report.CodedError{Code: report.ExitUnfinished, Err: err}
	}
	var kept []remote.Each
	one := func(e remote.Each) {
		a := Answer{Instance: e.Instance, Err: e.Err}
		if a.Err == nil {
			a.Envelope, a.Err = p.judge(ctx, ch.At(e.Instance), e.Stdout, e.Exit, req, "")
		}
		done(a)
	}
	err = ch.RunAll(ctx, remote.Cmd{Argv: how.argv, Stdin: bytes.NewReader(line), Stderr: log}, func(e remote.Each) {
		if f, bad := findAnswer(e.Stdout); e.Err == nil && bad == nil && f.kept != "" {
			kept = append(kept, e) // its pages would keep the others waiting
			return
		}
		one(e)
	})
	for _, e := range kept {
		if err != nil {
			done(Answer{Instance: e.Instance, Err: err})
			continue
		}
		one(e)
	}
	return err
}

// judge makes an answer of what a half wrote and ended with.
func (p *Program) judge(ctx context.Context, ch remote.Channel, stdout []byte, exit int, req Request, stderr string) (Envelope, error) {
	if exit >= exitNoHalf && exit <= exitNoFolder && len(stdout) == 0 {
		return Envelope{}, noAnswer(exit, ch.String(), req.Host.Name, req.Verb, stderr)
	}
	e, err := readOrFetch(ctx, ch, stdout, req)
	switch {
	case err != nil && len(stdout) == 0:
		return Envelope{}, noAnswer(exit, ch.String(), req.Host.Name, req.Verb, stderr)
	case err != nil:
		return Envelope{}, &remote.LostError{Err: report.Coded(report.ExitUnfinished, "%s: %s ended with %d: %w", ch, req.Verb, exit, err)}
	case e.Verb != req.Verb:
		return Envelope{}, &remote.LostError{Err: report.Coded(report.ExitUnfinished, "%s: asked for %s, the answer is to %q", ch, req.Verb, e.Verb)}
	case e.Exit != exit:
		return Envelope{}, &remote.LostError{Err: report.Coded(report.ExitUnfinished, "%s: %s answered with exit %d but ended with %d", ch, req.Verb, e.Exit, exit)}
	}
	return e, e.failure()
}
