// Package cli is the command line: one file a command, which turns flags into
// a call of fleet and its answer into output and an exit code. It holds no
// logic of a verb. It may import everything below it; only cmd/agentworks-deploy
// imports it.
//
// Results go to standard output, everything else to standard error. A failure
// is one line, "agentworks-deploy: …"; the usage follows it only when the words
// of the command line were wrong.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/report"
)

const program = "agentworks-deploy"

// app is what the commands share: the streams and settings of this run.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
	self           string // the running program's own path

	hostsDir string   // --hosts-dir
	set      []string // --set key=value

	closers []func() error // of connections, run at the end

	started bool // a command's body has begun: errors are no usage errors now
	code    int  // what the body answered with
}

// Main runs one command line (without the program's name) and returns its exit
// code. Environ has the form of os.Environ.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintf(stderr, "%s: find this program's own file: %v\n", program, err)
		return report.ExitUnfinished
	}
	ctx, stop := interruptible()
	defer stop()
	a := &app{stdin: stdin, stdout: &pipe{w: stdout}, stderr: &pipe{w: stderr}, environ: environ, self: self}
	root := a.root()
	root.SetArgs(args)
	defer a.close()
	return a.end(root.ExecuteContextC(ctx))
}

// interruptible returns a context that INT, TERM and HUP cancel. A closed pipe
// comes back as EPIPE from the write instead of killing the process (case B72);
// Notify rather than Ignore, since children would inherit the latter.
func interruptible() (context.Context, func()) {
	closed := make(chan os.Signal, 1)
	signal.Notify(closed, syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return ctx, func() { stop(); signal.Stop(closed) }
}

// close ends what is still open. Nothing depends on it any more: a connection
// that cannot be closed ends with this program.
func (a *app) close() {
	for _, c := range a.closers {
		_ = c()
	}
}

// end prints a failure, if there is one, and says the exit code.
func (a *app) end(cmd *cobra.Command, err error) int {
	interrupted := cmd.Context() != nil && cmd.Context().Err() != nil
	switch {
	case err == nil && interrupted && a.code == report.ExitUnfinished:
		return report.ExitInterrupted
	case err == nil:
		return a.code
	case !a.started:
		fmt.Fprintf(a.stderr, "%s: %s\nusage: %s\nsee: %s --help\n", program, oneLine(err), usage(cmd), cmd.CommandPath())
		if coded := new(report.CodedError); errors.As(err, &coded) {
			return coded.Code
		}
		return report.ExitUsage
	case interrupted:
		fmt.Fprintf(a.stderr, "%s: interrupted: %s\n", program, oneLine(err))
		return report.ExitInterrupted
	}
	fmt.Fprintf(a.stderr, "%s: %s\n", program, oneLine(err))
	return report.CodeOf(err)
}

// oneLine is err fit for a terminal; joined errors stand behind each other.
func oneLine(err error) string {
	return report.Escape(strings.ReplaceAll(err.Error(), "\n", "; "))
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           program,
		Short:         "Provision slot hosts, deploy to them, and prove that their sandbox holds",
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          noCommand,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagFault(err) })
	root.SetHelpCommand(a.help(root))
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetIn(a.stdin)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().StringVar(&a.hostsDir, "hosts-dir", "", "folder of the host files (default: ./hosts, else the one beside the program's folder)")
	root.PersistentFlags().StringArrayVar(&a.set, "set", nil, "override one value of the host file, as key=value (see config explain)")
	describe(root, doc{example: program + " deploy lab"})
	root.AddCommand(
		a.hosts(),
		a.config(),
		a.lab(),
		a.provision(),
		a.slots(),
		a.slotcheck(),
		a.deploy(),
		a.admission(),
		a.sandbox(),
		a.labInitVerb(),
		a.version(),
		a.onHost(),
	)
	return root
}

// help is the command of that name; --help of each command says the same.
func (a *app) help(root *cobra.Command) *cobra.Command {
	return a.command(doc{
		use:     "help [command…]",
		short:   "Say what a command does, as its --help",
		codes:   "  0    the help was printed\n  2    wrong words: there is no such command\n",
		example: program + " help slots assign",
		noHost:  true,
	}, func(_ context.Context, words []string) (int, error) {
		cmd, rest, err := root.Find(words)
		if err != nil || len(rest) > 0 {
			a.started = false
			return 0, unknownCommand(cmd, rest[0])
		}
		return report.ExitOK, cmd.Help()
	})
}
