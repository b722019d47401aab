package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/onhost"
	"agentworks-deploy/internal/report"
)

// onHost is the host's half: another run of this program starts it through a
// channel and speaks the protocol of package onhost with it.
func (a *app) onHost() *cobra.Command {
	var protocol bool
	var uploaded, body string
	cmd := a.command(doc{
		use:   "on-host",
		short: "Serve one verb on the host (started by another run of this program)",
		codes: `  0    the verb's answer says that all is right, or the protocol's version was printed
  1-4  what the answer says
  3    the verb could not be begun or answered
`,
		example: program + " on-host --protocol",
		noHost:  true,
		args:    cobra.NoArgs,
	}, func(ctx context.Context, _ []string) (int, error) {
		if protocol {
			_, err := fmt.Fprintln(a.stdout, onhost.Protocol)
			return report.ExitOK, err
		}
		opened, err := onhost.Settle(a.self, uploaded, body)
		if err != nil {
			return 0, err
		}
		if err := onhost.AdoptOrphans(); err != nil {
			return 0, fmt.Errorf("become the parent of orphans: %w", err)
		}
		server := onhost.NewServer(version())
		if opened != nil {
			defer opened.Close()
			server.Body = opened
		}
		return server.Serve(ctx, a.stdin, a.stdout, a.stderr), nil
	})
	cmd.Hidden = true
	cmd.Flags().BoolVar(&protocol, "protocol", false, "print the protocol's version and end")
	cmd.Flags().StringVar(&uploaded, "uploaded", "", "this program was just uploaded: keep or remove its file")
	cmd.Flags().StringVar(&body, "body", "", "a file that came ahead of the request: read it in the place of what would follow that")
	return cmd
}
