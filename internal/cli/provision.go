package cli

import (
	"context"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/fleet"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/onhost"
)

func (a *app) provision() *cobra.Command {
	var plan *bool
	cmd := a.command(doc{
		use:   "provision <host>",
		short: "Make a host a slot host: accounts, folders, slotctl, the sudo rule",
		long: `Give a host everything that slots need and the platform does not make: the slot
accounts and their groups, their folders, the shared folders' ACLs, slotctl with
its configuration, the slot table, the sudo rule, the AppArmor exception where
the kernel wants one, and linger for the service account. It finishes whatever an
earlier run left half-done, keeps the slot table and what administrators set, and
touches nothing where nothing differs. It needs the admin channel. The service
account, its app folder and its units are the platform's to make.`,
		codes: `  0    the host is provisioned, or the plan was made
  1    it cannot be: accounts in conflict, platform not installed, sudo rule refused
  2    wrong words: flag, host file, unknown host, not root
  3    the host could not be reached or the work could not be finished
  4    another run holds the lock, or another program the account files
  130  interrupted
`,
		example: program + " provision lab --plan\n" + program + " provision rts",
	}, func(ctx context.Context, args []string) (int, error) {
		return a.change(args[0], "provision", func(f *fleet.Fleet, host *hosts.Host) (onhost.Envelope, error) {
			return f.Provision(ctx, host, *plan)
		})
	})
	plan = planFlag(cmd)
	return cmd
}
