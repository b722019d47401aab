package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/report"
)

func (a *app) sandbox() *cobra.Command {
	return a.group(doc{
		use:     "sandbox",
		short:   "Commands as a slot, through the real chain",
		example: program + " sandbox run lab --slot slot01 --dir /srv/vs/data/docs/Workflow/wf1 -- pwd",
	}, a.sandboxRun())
}

func (a *app) sandboxRun() *cobra.Command {
	var ask onhost.SandboxRunArgs
	cmd := a.command(doc{
		use:   "run <host> --slot <slot> --dir <folder> [flags] -- <program> [word…]",
		short: "Run one command as a slot, confined like a user's",
		long: `Run one command the way the platform's shell tool does: from the service account
through sudo and slotctl as the slot, and through the launcher of the live release,
confined to what is granted. Output and exit code pass through; the command has no
standard input. A program without a slash is looked for inside the sandbox.

--dir is granted for reading and writing; with --read of the same folder for reading
alone. A path that no slot may have is left out, and a line on standard error says so.`,
		codes: `  the command's own, or 128+n where signal n ended it
  125  the host could not be reached or asked, sudo started nothing, or the sandbox could not be made
  126  slotctl refused, or the program may not be executed
  127  the launcher or the program could not be started
`,
		example: program + " sandbox run lab --slot slot01 --dir /srv/vs/data/docs/_users/u1/Chats/Work/projects/u1crew -- cat own.txt",
		args:    cobra.ArbitraryArgs,
	}, func(ctx context.Context, args []string) (int, error) {
		exit, err := a.runSandboxed(ctx, ask, args)
		if err != nil {
			return 0, report.Coded(exitOwnFailure, "sandbox run: %w", err)
		}
		return exit, nil
	})
	// A fault of our own words must not look like the command's exit code.
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return report.Coded(exitOwnFailure, "sandbox run: %w", flagFault(err))
	})
	f := cmd.Flags()
	f.StringVar(&ask.Slot, "slot", "", "the slot to run as")
	f.StringVar(&ask.Dir, "dir", "", "working folder, absolute")
	f.StringArrayVar(&ask.Read, "read", nil, "one more path to read; may be repeated")
	f.StringArrayVar(&ask.Write, "write", nil, "one more path to read and write; may be repeated")
	f.StringVar(&ask.BrowserSession, "browser-session", "", "the managed browser's session of a chat, as the platform would name it")
	return cmd
}

func (a *app) runSandboxed(ctx context.Context, ask onhost.SandboxRunArgs, args []string) (int, error) {
	for _, word := range []struct {
		name string
		here bool
	}{{"<host>", len(args) > 0}, {"--slot", ask.Slot != ""}, {"--dir", ask.Dir != ""}, {"<program>", len(args) > 1}} {
		if !word.here {
			return 0, a.wrong(exitOwnFailure, "%s is missing", word.name)
		}
	}
	loaded, err := a.host(args[0])
	if err != nil {
		return 0, err
	}
	fleet, err := a.fleet(a.stderr)
	if err != nil {
		return 0, fmt.Errorf("reach %s: %w", args[0], err)
	}
	ask.Argv = args[1:]
	return fleet.SandboxRun(ctx, &loaded.Host, ask, a.stdout, a.stderr)
}
