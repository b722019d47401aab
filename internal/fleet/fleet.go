// Package fleet is the operator's half of the verbs: it composes calls of the
// on-host half into one verb on one host, and runs a verb on many. It may import
// onhost and everything below it; only cli imports it. It prints nothing but
// progress lines.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// Fleet reaches hosts on behalf of one command. Close it at the end.
type Fleet struct {
	Program *onhost.Program // the operator's own program, sent where it is missing
	Log     io.Writer       // progress lines of the host's half
	// Getenv reads this side's environment: VAULT_*, where Vault is asked from here.
	Getenv func(name string) string

	mu       sync.Mutex
	channels map[place]remote.Channel // one a run: one login, one look-up
}

type place struct {
	host string
	role remote.Role
}

// channel opens host's channel for role, once.
func (f *Fleet) channel(host *hosts.Host, role remote.Role) (remote.Channel, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := place{host.Name, role}
	if ch, ok := f.channels[at]; ok {
		return ch, nil
	}
	ch, err := remote.Open(host, role)
	if err != nil {
		return nil, err
	}
	if f.channels == nil {
		f.channels = map[place]remote.Channel{}
	}
	f.channels[at] = ch
	return ch, nil
}

// Close ends the connections that were made.
func (f *Fleet) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	for _, ch := range f.channels {
		err = errors.Join(err, ch.Close())
	}
	f.channels = nil
	return err
}

// call is one call of the half of a host. Args is any value that the verb's
// Session.Args reads; body may be nil, and what is then a person's word for it.
type call struct {
	verb string
	args any
	plan bool
	body io.Reader
	what string
}

func (c call) request(host *hosts.Host) (onhost.Request, error) {
	req := onhost.Request{Verb: c.verb, Host: *host, Plan: c.plan}
	if c.args != nil {
		args, err := json.Marshal(c.args)
		if err != nil {
			return req, report.Coded(report.ExitUnfinished, "write the arguments of %s: %w", c.verb, err)
		}
		req.Args = args
	}
	return req, nil
}

// call runs c on host over the channel of the verb's role. Its answer and error
// are those of onhost.Program.Call, and a plan says which machine the host
// file's names led to.
func (f *Fleet) call(ctx context.Context, host *hosts.Host, c call) (onhost.Envelope, error) {
	req, err := c.request(host)
	if err != nil {
		return onhost.Envelope{}, err
	}
	ch, err := f.channel(host, onhost.Verbs()[c.verb].Role)
	if err != nil {
		return onhost.Envelope{}, err
	}
	var e onhost.Envelope
	if _, narrow := ch.(remote.Narrow); narrow {
		e, err = f.callNarrow(ctx, host, ch, req, c)
	} else {
		e, err = f.Program.Call(ctx, ch, req, c.body, f.Log)
	}
	if found, ok := ch.(remote.Lookup); ok && c.plan && found.Found() != "" {
		e.Rows = append([]report.Row{{State: report.Info, Check: "channel", Detail: found.Found()}}, e.Rows...)
	}
	return e, err
}
