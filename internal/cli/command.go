package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/report"
)

// doc is what a command says about itself.
type doc struct {
	use     string               // "deploy <host>"
	short   string               // one line, without a final period
	long    string               // paragraphs; empty: short is enough
	codes   string               // exit codes whose meaning is the command's own; else the common ones
	example string               // one or more lines, as typed
	args    cobra.PositionalArgs // nil: the words that use names, see words
	noHost  bool                 // it reads no host file, so that --set would mean nothing
}

// body does a command's work: it answers with the exit code, or with an error
// that carries one (report.Coded). It prints results itself, never the error.
type body func(ctx context.Context, args []string) (int, error)

const commonCodes = `  0    all right
  1    right words, wrong state: a check failed, or the asked state was not reached
  2    wrong words: id, name, flag, host file, unknown host or release, not root
  3    could not look or finish: unreachable, truncated, timed out, not checked
  4    another run holds the lock
  130  interrupted
`

// localCodes are those of a command that asks no host and holds no lock.
const localCodes = `  0    all right
  2    wrong words: flag, host file, unknown host
`

// groupCodes are those of a command that only holds others.
const groupCodes = `  0    its help was printed; what its commands end with stands in their help
  2    wrong words: a command is missing or unknown
`

// labCodes are those of what brings a lab up or ends it.
const labCodes = `  0    all right
  2    wrong words: flag, lab name, not root
  3    it could not be done
  4    another run holds the lab
  130  interrupted
`

// help prints a command's help in the form that all have: it ends with the exit
// codes and an example. It is no template: text/template would keep every method
// of every linked package alive, and the program 8 MB larger.
func help(cmd *cobra.Command, _ []string) {
	var b strings.Builder
	section := func(title, text string) {
		if text = strings.TrimRight(text, " \n"); text != "" {
			fmt.Fprintf(&b, "\n%s:\n%s\n", title, text)
		}
	}
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	b.WriteString(strings.TrimRight(about, " \n") + "\n")
	section("Usage", "  "+usage(cmd))
	var commands strings.Builder
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(&commands, "  %-*s %s\n", cmd.NamePadding(), c.Name(), c.Short)
		}
	}
	section("Commands", commands.String())
	section("Flags", cmd.LocalFlags().FlagUsages())
	section("Flags of every command", cmd.InheritedFlags().FlagUsages())
	section("Exit codes", cmd.Annotations["codes"])
	section("Example", cmd.Example)
	fmt.Fprint(cmd.OutOrStdout(), b.String())
}

// usage is the command line of cmd; of one that only holds others the next word
// is missing.
func usage(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " <command>"
	}
	return cmd.UseLine()
}

// command makes a command; its flags are added by the caller.
func (a *app) command(d doc, run body) *cobra.Command {
	if d.args == nil {
		d.args = words(d.use)
	}
	cmd := &cobra.Command{
		Use:   d.use,
		Short: d.short,
		Args:  d.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if d.noHost && len(a.set) > 0 {
				code := report.ExitUsage
				if d.codes == passedCodes {
					code = exitOwnFailure
				}
				return report.Coded(code, "--set goes with commands that take a host; %s reads no host file", strings.TrimPrefix(cmd.CommandPath(), program+" "))
			}
			a.started = true
			code, err := run(cmd.Context(), args)
			a.code = code
			return err
		},
	}
	describe(cmd, d)
	return cmd
}

// words takes the words that use names behind the command's own: "<host>" must
// be there, "[slot]" may, "[host…]" any number of times. Its error names the word
// that is missing or too many.
func words(use string) cobra.PositionalArgs {
	var must []string
	most := 0
	for _, w := range strings.Fields(use)[1:] {
		switch {
		case strings.HasPrefix(w, "<"):
			must = append(must, w)
			most++
		case strings.HasSuffix(w, "…]"):
			most = math.MaxInt
		default:
			most++
		}
	}
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(must):
			return fmt.Errorf("%s is missing", must[len(args)])
		case len(args) > most:
			return fmt.Errorf("%q is a word too many", args[most])
		}
		return nil
	}
}

// wrong is an error about the words of the command line, found by the command
// itself: like cobra's own it is followed by the usage.
func (a *app) wrong(code int, format string, args ...any) error {
	a.started = false
	return report.Coded(code, format, args...)
}

// group makes a command that only holds others.
func (a *app) group(d doc, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: d.use, Short: d.short, Args: cobra.ArbitraryArgs, RunE: noCommand}
	cmd.AddCommand(commands...)
	d.codes = groupCodes
	describe(cmd, d)
	return cmd
}

// noCommand is the error of a command that only holds others: the next word is
// missing, or is none of them.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return report.Coded(report.ExitUsage, "a command is missing: %s", strings.Join(names, ", "))
}

func unknownCommand(cmd *cobra.Command, word string) error {
	cmd.SuggestionsMinimumDistance = 2 // more slips than two make another word
	text := fmt.Sprintf("unknown command %q", word)
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return report.Coded(report.ExitUsage, "%s", text)
}

// flagFault is what was wrong with a flag, without the words of the parser of
// numbers.
func flagFault(err error) error {
	var number *strconv.NumError
	if !errors.As(err, &number) {
		return err
	}
	wants := "a whole number"
	if number.Func == "ParseBool" {
		wants = "true or false"
	}
	text, _, _ := strings.Cut(err.Error(), " flag: ")
	return fmt.Errorf("%s flag: it wants %s", text, wants)
}

// describe gives a command's help the form that all have: it ends with the exit
// codes and an example.
func describe(cmd *cobra.Command, d doc) {
	cmd.Long = d.long
	cmd.Example = "  " + strings.ReplaceAll(strings.TrimSpace(d.example), "\n", "\n  ")
	codes := d.codes
	if codes == "" {
		codes = commonCodes
	}
	cmd.Annotations = map[string]string{"codes": codes}
	cmd.SetHelpFunc(help)
	cmd.DisableFlagsInUseLine = false
	cmd.Flags().SortFlags = false
}
