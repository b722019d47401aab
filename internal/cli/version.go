package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

// Version is set by the build (-ldflags -X) and never changed at run time.
var Version = "dev"

func version() string { return Version }

func (a *app) version() *cobra.Command {
	return a.command(doc{
		use:     "version",
		short:   "Print the version of this program",
		codes:   "  0    the version was printed\n  2    wrong words\n",
		example: program + " version",
		noHost:  true,
	}, func(context.Context, []string) (int, error) {
		_, err := fmt.Fprintln(a.stdout, version())
		return 0, err
	})
}
