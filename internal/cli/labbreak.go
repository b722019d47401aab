package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/lab"
	"agentworks-deploy/internal/lab/breakages"
	"agentworks-deploy/internal/report"
)

func (a *app) labBreak() *cobra.Command {
	var name *string
	var list bool
	cmd := a.command(doc{
		use:   "break [flags] <breakage>…",
		short: "Break a lab in ways that slot hosts broke",
		long: `Break a lab in ways that slot hosts broke, one after another: what an
administrator's slip or an old release would have caused. The lab must be provisioned, with the
sample release live and u1 and u2 in slot01 and slot02. Slotcheck finds each and
prints its fix; lab heal takes back whatever was broken.`,
		codes: `  0    the lab is broken as asked, or the list was printed
  1    it is broken so already, or is not as the breakage wants it
  2    wrong words: flag, breakage, lab name, not root
  3    the lab is not up, or it could not be done
  130  interrupted
`,
		args:    cobra.ArbitraryArgs,
		noHost:  true,
		example: program + " lab break --list\n" + program + " lab break releases-0700",
	}, func(ctx context.Context, args []string) (int, error) {
		if list {
			if len(args) > 0 {
				return 0, report.Coded(report.ExitUsage, "lab break: --list goes with no breakage")
			}
			return report.ExitOK, a.listBreakages()
		}
		if len(args) == 0 {
			return 0, report.Coded(report.ExitUsage, "lab break: no breakage given; %s lab break --list says which there are", program)
		}
		var chosen []breakages.Breakage
		for _, arg := range args {
			b, err := breakages.Find(arg)
			if err != nil {
				return 0, report.Coded(report.ExitUsage, "%w; %s lab break --list says which there are", err, program)
			}
			chosen = append(chosen, b)
		}
		l, err := lab.Find(*name)
		if err != nil {
			return 0, err
		}
		for _, b := range chosen {
			if err := b.Break(ctx, l); errors.As(err, new(*exec.ExitError)) {
				return 0, report.Coded(report.ExitState, "%w; %s lab heal takes back what was done", err, program)
			} else if err != nil {
				return 0, notUp(l, err)
			}
			fmt.Fprintf(a.stdout, "lab %s is broken: %s: %s\n", l.Name, b.Name, b.Story)
		}
		return report.ExitOK, nil
	})
	name = a.labName(cmd)
	cmd.Flags().BoolVar(&list, "list", false, "say what each breakage is and which rows of slotcheck find it")
	return cmd
}

func (a *app) listBreakages() error {
	all, err := breakages.All()
	if err != nil {
		return err
	}
	table := report.NewTable("BREAKAGE", "LEVEL", "FOUND BY", "STORY").Fit(a.style().Width)
	for _, b := range all {
		table.Add(b.Name, b.Level, strings.Join(b.Rows, ", "), b.Story)
	}
	return table.Write(a.stdout)
}

func (a *app) labHeal() *cobra.Command {
	var name *string
	cmd := a.command(doc{
		use:   "heal",
		short: "Take back what lab break broke",
		long: `Take back what lab break broke, the newest first, by the lab's own record of what
it touched. What a printed fix has put right meanwhile comes back as it was before too.`,
		codes: `  0    everything is as it was before, or nothing was broken
  2    wrong words: flag, lab name, not root
  3    the lab is not up, or it could not be done
  130  interrupted
`,
		noHost:  true,
		example: program + " lab heal",
	}, func(ctx context.Context, _ []string) (int, error) {
		l, err := lab.Find(*name)
		if err != nil {
			return 0, err
		}
		healed, err := breakages.Heal(ctx, l)
		for _, b := range healed {
			fmt.Fprintf(a.stdout, "lab %s is healed: %s\n", l.Name, b)
		}
		if err != nil {
			return 0, notUp(l, err)
		}
		if len(healed) == 0 {
			fmt.Fprintf(a.stdout, "lab %s: nothing to heal\n", l.Name)
		}
		return report.ExitOK, nil
	})
	name = a.labName(cmd)
	return cmd
}
