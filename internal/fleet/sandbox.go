package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"unicode/utf8"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/remote"
)

// SandboxRun runs one command on host as a slot, confined, and returns the
// command's exit code. The command writes to stdout and stderr while it runs.
// An error means that nothing is known of the command's end.
func (f *Fleet) SandboxRun(ctx context.Context, host *hosts.Host, args onhost.SandboxRunArgs, stdout, stderr io.Writer) (int, error) {
	for _, s := range slices.Concat([]string{args.Dir}, args.Read, args.Write, args.Argv) {
		if !utf8.ValidString(s) {
			return 0, fmt.Errorf("%q is not UTF-8: a request would carry other bytes", s)
		}
	}
	named := func(p string) bool { return path.Clean(p) == path.Clean(args.Dir) }
	if !slices.ContainsFunc(args.Read, named) && !slices.ContainsFunc(args.Write, named) {
		args.Write = append(args.Write, args.Dir)
	}
	text, err := json.Marshal(args)
	if err != nil {
		return 0, fmt.Errorf("write the arguments of sandbox-run: %w", err)
	}
	ch, err := f.channel(host, remote.Service)
	if err != nil {
		return 0, err
	}
	req := onhost.Request{Verb: "sandbox-run", Host: *host, Args: text}
	e, err := f.Program.CallStream(ctx, ch, req, f.Log, stdout, stderr)
	if err != nil {
		return 0, err
	}
	var data onhost.SandboxRunData
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return 0, fmt.Errorf("read the answer of sandbox-run: %w", err)
	}
	return data.Exit, nil
}
