package onhost

import (
	"context"
	"errors"
	"fmt"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/shell"
	"agentworks-deploy/internal/slotcheck"
)

// SandboxRunArgs are the arguments of the verb sandbox-run: one command of a
// slot. Dir is granted for writing unless Read holds it.
type SandboxRunArgs struct {
	Slot           string   `json:"slot"`
	Dir            string   `json:"dir"`
	Read           []string `json:"read,omitempty"`
	Write          []string `json:"write,omitempty"`
	BrowserSession string   `json:"browser_session,omitempty"`
	Argv           []string `json:"argv"`
}

// SandboxRunData is what its envelope carries: the command's exit code, or that
// of slotctl or the launcher. Where sudo started nothing there is none. The envelope's own code is the verb's.
type SandboxRunData struct {
	Exit int `json:"exit"`
}

func verbSandboxRun() Verb {
	return Verb{Role: remote.Service, Stream: true, Run: runSandbox}
}

func runSandbox(ctx context.Context, s *Session) ([]report.Row, error) {
	var args SandboxRunArgs
	if err := s.Args(&args); err != nil {
		return nil, err
	}
	host := s.Request.Host
	chain, err := slotcheck.Chain(ctx, slotcheck.ThisHost(host.Release.Manager), host, args.Slot)
	if err != nil {
		return nil, err
	}
	call, err := chain.Wrap(shell.Command{
		Slot: args.Slot, Dir: args.Dir, Read: args.Read, Write: args.Write,
		BrowserSession: args.BrowserSession, Argv: args.Argv,
	})
	if err != nil {
		return nil, err
	}
	for _, d := range call.Dropped {
		fmt.Fprintln(s.Log, d)
	}
	exit, err := call.Run(ctx, s.Stdout, s.Stderr)
	s.Data = SandboxRunData{Exit: exit}
	if _, ok := errors.AsType[*shell.SudoError](err); ok {
		return nil, fmt.Errorf("%w: is %s a slot of this host? What else is wrong says: agentworks-deploy slotcheck %s", err, args.Slot, host.Name)
	}
	return nil, err
}
