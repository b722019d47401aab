// Package fleet is the operator's half of the verbs: it composes calls of the
// on-host half into one verb on one host. It may import onhost and everything
// below it; only cli imports it. It prints nothing but progress lines.
package fleet

import (
	"context"
	"encoding/json"
	"io"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// Fleet reaches hosts on behalf of one command.
type Fleet struct {
	Program *onhost.Program // the operator's own program, sent where it is missing
	Log     io.Writer       // progress lines of the host's half
}

// call is one call of the half of a host. Args is any value that the verb's
// Session.Args reads; body may be nil.
type call struct {
	verb string
	args any
	plan bool
	body io.Reader
}

// call runs c on host over the channel of the verb's role. Its answer and error
// are those of onhost.Program.Call.
func (f *Fleet) call(ctx context.Context, host *hosts.Host, c call) (onhost.Envelope, error) {
	req := onhost.Request{Verb: c.verb, Host: *host, Plan: c.plan}
	if c.args != nil {
		args, err := json.Marshal(c.args)
		if err != nil {
			return onhost.Envelope{}, report.Coded(report.ExitUnfinished, "write the arguments of %s: %w", c.verb, err)
		}
		req.Args = args
	}
	ch, err := remote.Open(host, onhost.Verbs()[c.verb].Role)
	if err != nil {
		return onhost.Envelope{}, err
	}
	defer ch.Close()
	return f.Program.Call(ctx, ch, req, c.body, f.Log)
}
