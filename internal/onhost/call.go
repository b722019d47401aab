package onhost

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// Call has ch run req's verb on the host and returns its answer. Body, which may
// be nil, is sent after the request; log receives the half's progress lines.
//
// An answer that says that the verb could not finish comes back together with
// an error of its exit code, so that its rows can still be printed. No answer,
// or one without a right trailer, is exit 3, never a verdict. A verb that ran to
// its end has no error here: its code is Envelope.Exit.
func (p *Program) Call(ctx context.Context, ch remote.Channel, req Request, body io.Reader, log io.Writer) (Envelope, error) {
	verb, ok := Verbs()[req.Verb]
	if !ok {
		return Envelope{}, report.Coded(report.ExitUnfinished, "no verb %q", req.Verb)
	}
	how, err := p.plan(ctx, ch, verb, req)
	if err != nil {
		return Envelope{}, err
	}
	return p.exchange(ctx, ch, how, req, body, log)
}

// CallStream is Call for a verb with Stream: what its program writes comes out
// of stdout and stderr while it runs, or at its end where ch has no stream.
func (p *Program) CallStream(ctx context.Context, ch remote.Channel, req Request, log, stdout, stderr io.Writer) (Envelope, error) {
	if _, narrow := ch.(remote.Narrow); !narrow {
		return p.Call(ctx, passing{ch, stdout, stderr}, req, nil, log)
	}
	e, err := p.Call(ctx, ch, req, nil, log)
	if _, bad := (&demux{stdout: stdout, stderr: stderr, answer: io.Discard}).Write(e.Output); err == nil {
		err = bad
	}
	return e, err
}

// exchange starts the half, sends the request and reads the answer.
func (p *Program) exchange(ctx context.Context, ch remote.Channel, how plan, req Request, body io.Reader, log io.Writer) (Envelope, error) {
	req.V, req.Version, req.Body = Protocol, p.Version, body != nil
	beneath := ch
	if p, ok := ch.(passing); ok {
		beneath = p.Channel
	}
	switch way := beneath.(type) {
	case remote.Narrow:
		req.Encoding, req.AnswerLimit, req.NoLease = Packed, way.OutputLimit(), true
	case remote.Distant:
		req.Beat = int(way.Patience() / time.Second)
	}
	stdin, err := p.stdin(how, req, body)
	if err != nil {
		return Envelope{}, err
	}
	defer stdin.Close()
	stdout := &capped{left: maxAnswer}
	stderr := &tail{w: log}
	exit, err := ch.Run(ctx, remote.Cmd{Argv: how.argv, Stdin: stdin, Stdout: stdout, Stderr: stderr})
	if err != nil {
		if Verbs()[req.Verb].Parting && ctx.Err() != nil && !req.NoLease {
			if e, ok := parting(stdout.Bytes(), req); ok {
				return e, e.failure()
			}
		}
		return Envelope{}, err
	}
	if err := stdin.failed(); err != nil {
		return Envelope{}, report.Coded(report.ExitUnfinished, "send to %s: %w", ch, err)
	}
	if names, ok := strings.CutPrefix(stdout.String(), "missing "); ok && exit == exitMissing {
		return Envelope{}, &missingError{strings.Fields(names)}
	}
	e, err := p.judge(ctx, ch, stdout.Bytes(), exit, req, stderr.last())
	if e.V != 0 && e.Version != p.Version {
		fmt.Fprintf(log, "the half on %s is version %s, this program is %s; to update it: agentworks-deploy provision %s\n", req.Host.Name, e.Version, p.Version, req.Host.Name)
	}
	return e, err
}

// parting is the whole answer in the output of a half whose caller is leaving.
func parting(output []byte, req Request) (Envelope, bool) {
	f, err := findAnswer(output)
	if err != nil || f.kept != "" {
		return Envelope{}, false
	}
	e, err := f.read(req.Encoding)
	return e, err == nil && e.Verb == req.Verb
}

func (p *Program) plan(ctx context.Context, ch remote.Channel, verb Verb, req Request) (plan, error) {
	layout := req.Host.Layout()
	if verb.Role == remote.Admin {
		return p.admin(verb, layout), nil
	}
	return p.service(ctx, verb, layout, func(ctx context.Context, argv []string) (string, error) {
		var found bytes.Buffer
		stderr := &tail{w: io.Discard}
		exit, err := ch.Run(ctx, remote.Cmd{Argv: argv, Stdout: &found, Stderr: stderr})
		if err == nil && exit != 0 {
			err = noAnswer(exit, ch.String(), req.Host.Name, req.Verb, stderr.last())
		}
		return found.String(), err
	})
}

// input is the half's standard input: the program (when it is uploaded), the
// request, the body's frames, and then the lease, which ends with Close.
type input struct {
	io.Reader
	program *os.File
	unread  chan error // the body's read error, if there was one
	closed  chan struct{}
}

func (p *Program) stdin(how plan, req Request, body io.Reader) (*input, error) {
	line, err := requestLine(req)
	if err != nil {
		return nil, &report.CodedError{Code: report.ExitUnfinished, Err: err}
	}
	in := &input{unread: make(chan error, 1), closed: make(chan struct{})}
	var parts []io.Reader
	if how.upload {
		if in.program, err = os.Open(p.Path); err != nil {
			return nil, report.Coded(report.ExitUnfinished, "read this program's own file: %w", err)
		}
		parts = append(parts, io.LimitReader(in.program, p.size))
	}
	parts = append(parts, bytes.NewReader(line))
	if body != nil {
		parts = append(parts, &framer{body: body, failed: in.unread})
	}
	if !req.NoLease {
		parts = append(parts, &lease{closed: in.closed, beat: time.Duration(req.Beat) * time.Second / beats})
	}
	in.Reader = io.MultiReader(parts...)
	return in, nil
}

// failed says why the body could not be read here.
func (in *input) failed() error {
	select {
	case err := <-in.unread:
		return fmt.Errorf("read what is to be sent: %w", err)
	default:
		return nil
	}
}

func (in *input) Close() error {
	close(in.closed)
	if in.program != nil {
		return in.program.Close()
	}
	return nil
}

// beats is how many of them come in the time after which a caller is lost.
const beats = 10

// lease is a stream that ends when closed is. Where beat is set, a line feed
// comes that often, which shows the far end that the connection still stands.
type lease struct {
	closed <-chan struct{}
	beat   time.Duration
}

func (l *lease) Read(p []byte) (int, error) {
	var beat <-chan time.Time
	if l.beat > 0 {
		t := time.NewTimer(l.beat)
		defer t.Stop()
		beat = t.C
	}
	select {
	case <-l.closed:
		return 0, io.EOF
	case <-beat:
		p[0] = '\n'
		return 1, nil
	}
}

var errOverCap = fmt.Errorf("more than %d bytes of output", maxAnswer)

// capped collects output up to a bound; what is beyond it is not an answer.
type capped struct {
	bytes.Buffer
	left int
}

func (c *capped) Write(p []byte) (int, error) {
	if len(p) > c.left {
		return 0, errOverCap
	}
	c.left -= len(p)
	return c.Buffer.Write(p)
}

// tail passes everything on and keeps the end of it for an error.
type tail struct {
	w   io.Writer
	end []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.end = append(t.end, p...)
	if over := len(t.end) - 4096; over > 0 {
		t.end = t.end[over:]
	}
	return t.w.Write(p)
}

func (t *tail) last() string { return string(t.end) }
