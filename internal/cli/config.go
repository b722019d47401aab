package cli

import (
	"context"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/report"
)

func (a *app) config() *cobra.Command {
	explain := a.command(doc{
		use:   "explain <host>",
		short: "Print every effective value of a host with its source",
		long: `Print every effective value of a host with its source: the default, the line of the
host file, the environment variable, or the flag. Each layer overrides those before
it. What may hold a secret is blacked out.`,
		codes:   localCodes,
		example: program + " config explain lab\nAGENTWORKS_DEPLOY_SLOTS_COUNT=3 " + program + " config explain lab",
	}, func(_ context.Context, args []string) (int, error) {
		l, err := a.host(args[0])
		if err != nil {
			return 0, err
		}
		table := report.NewTable("KEY", "VALUE", "SOURCE").Fit(a.style().Width)
		for _, v := range l.Explain() {
			table.Add(v.Key, v.Value, v.Source)
		}
		return 0, table.Write(a.stdout)
	})
	return a.group(doc{
		use:     "config",
		short:   "Say where a host's values come from",
		example: program + " config explain lab",
	}, explain)
}
