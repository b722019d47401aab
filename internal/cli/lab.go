package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"agentworks-deploy/internal/lab"
	"agentworks-deploy/internal/report"
)

// labInit is the verb of this program that becomes a lab's first process.
const labInit = "lab-init"

// exitOwnFailure is what a command that passes another's exit code answers when
// it could not even run it.
const exitOwnFailure = 125

func (a *app) lab() *cobra.Command {
	return a.group(doc{
		use:   "lab",
		short: "A throwaway slot host on this machine",
		long: `A lab is a Debian host with a systemd of its own on the machine you sit at. Its
files live until it is reset; nothing of the machine itself changes. Several
labs may be up at once, each with a name.`,
		example: program + " lab up --reference\n" + program + " lab exec -- systemctl is-system-running\n" + program + " lab reset",
	}, a.labUp(), a.labExec(), a.labShell(), a.labDown(), a.labReset(), a.labStatus(), a.labBreak(), a.labHeal())
}

// labName adds --name; its default is the lab that the host file "lab" means.
func (a *app) labName(cmd *cobra.Command) *string {
	name := a.getenv("AGENTWORKS_DEPLOY_LAB")
	if name == "" {
		name = lab.DefaultName
	}
	return cmd.Flags().String("name", name, "which lab; AGENTWORKS_DEPLOY_LAB changes the default")
}

func (a *app) labUp() *cobra.Command {
	var name *string
	var reference bool
	cmd := a.command(doc{
		use:   "up",
		short: "Bring a lab up and wait until it is running",
		long: `Bring a lab up and wait until it is running. The first lab of a machine makes a
Debian root file system with mmdebstrap from the machine's own apt sources, which
takes about a minute.`,
		codes:   labCodes,
		example: program + " lab up --name demo --reference",
		noHost:  true,
	}, func(ctx context.Context, _ []string) (int, error) {
		l, err := lab.Find(*name)
		if err != nil {
			return 0, err
		}
		begin := time.Now()
		failed, err := l.Up(ctx, lab.UpOptions{
			Init: []string{a.self, labInit}, Reference: reference,
			Progress: func(text string) { fmt.Fprintf(a.stderr, "lab %s: %s\n", l.Name, text) },
		})
		if err != nil {
			return 0, err
		}
		if len(failed) > 0 {
			fmt.Fprintf(a.stderr, "lab %s: degraded, these units failed: %s\n", l.Name, strings.Join(failed, ", "))
		}
		fmt.Fprintf(a.stdout, "lab %s is up (%.1f s)\n", l.Name, time.Since(begin).Seconds())
		return report.ExitOK, nil
	})
	name = a.labName(cmd)
	cmd.Flags().BoolVar(&reference, "reference", false, "also make what a platform would have made: service account, units, docs tree")
	return cmd
}

const passedCodes = `  the command's own, or 128+n where signal n ended it
  125  the lab is not up, or the command could not be handed over
  126  the program may not be executed
  127  the program does not exist
`

func (a *app) labExec() *cobra.Command {
	var name *string
	var user string
	cmd := a.command(doc{
		use:     "exec [flags] -- <program> [word…]",
		short:   "Run a program in a lab",
		long:    "Run a program in a lab; standard input, output and the exit code pass through. No shell reads the words.",
		codes:   passedCodes,
		example: program + " lab exec -- chmod 0700 /srv/vs/releases\n" + program + " lab exec --user vs -- id",
		noHost:  true,
		args:    cobra.ArbitraryArgs,
	}, func(ctx context.Context, args []string) (int, error) {
		if len(args) == 0 {
			return 0, a.wrong(exitOwnFailure, "lab exec: <program> is missing")
		}
		return a.inLab(ctx, *name, user, args)
	})
	// Words after the program are the program's; a fault of our own words must
	// not look like the program's exit code.
	cmd.Flags().SetInterspersed(false)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return report.Coded(exitOwnFailure, "lab exec: %w", flagFault(err))
	})
	name = a.labName(cmd)
	cmd.Flags().StringVar(&user, "user", "root", "account of the lab to run as")
	return cmd
}

// labLogin makes a login of lab shell, with the folder by which systemctl --user
// finds the account's manager: no pam_systemd is on the way that would set it.
const labLogin = "cd; [ ! -d /run/user/$(id -u) ] || export XDG_RUNTIME_DIR=/run/user/$(id -u); exec ${SHELL:-/bin/bash} -l"

func (a *app) labShell() *cobra.Command {
	var name *string
	var user string
	cmd := a.command(doc{
		use:     "shell",
		short:   "Open a login shell in a lab, on a terminal of its own",
		codes:   passedCodes,
		example: program + " lab shell --user vs",
		noHost:  true,
	}, func(ctx context.Context, _ []string) (int, error) {
		if f, ok := a.stdin.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
			return 0, report.Coded(exitOwnFailure, "lab shell: standard input is no terminal; without one: %s lab exec --name %s -- <program> [word…]", program, *name)
		}
		// The machine's terminal is unknown in the lab; script makes one there.
		return a.inLab(ctx, *name, user, []string{"script", "--quiet", "--return", "--command", labLogin, "/dev/null"})
	})
	name = a.labName(cmd)
	cmd.Flags().StringVar(&user, "user", "root", "account of the lab to run as")
	return cmd
}

// inLab runs argv in a lab on this program's own streams.
func (a *app) inLab(ctx context.Context, name, user string, argv []string) (int, error) {
	l, err := lab.Find(name)
	if err != nil {
		return 0, report.Coded(exitOwnFailure, "%w", err)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, unwrap(a.stdout), unwrap(a.stderr)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if term := a.getenv("TERM"); term != "" {
		cmd.Env = []string{"TERM=" + term}
	}
	if err = l.Start(cmd, user); err == nil {
		err = cmd.Wait()
	}
	code := lab.ExitCode(err)
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) {
		return code, nil
	}
	return 0, &report.CodedError{Code: code, Err: notUp(l, err)}
}

// notUp adds the next step to an error of a lab that is down.
func notUp(l *lab.Lab, err error) error {
	if errors.Is(err, lab.ErrNotUp) {
		return fmt.Errorf("%w; bring it up: %s lab up --name %s --reference", err, program, l.Name)
	}
	return err
}

// unwrap gives a child the file itself instead of a pipe that we would copy.
func unwrap(w io.Writer) io.Writer {
	if p, ok := w.(*pipe); ok {
		if file, ok := p.w.(*os.File); ok {
			return file
		}
	}
	return w
}

func (a *app) labDown() *cobra.Command {
	return a.labEnd(doc{
		use:     "down",
		short:   "End a lab and keep its files",
		codes:   labCodes,
		example: program + " lab down --name demo",
		noHost:  true,
	}, "down", (*lab.Lab).Down)
}

func (a *app) labReset() *cobra.Command {
	return a.labEnd(doc{
		use:     "reset",
		short:   "End a lab and remove its files, whatever state it is in",
		codes:   labCodes,
		example: program + " lab reset --name demo",
		noHost:  true,
	}, "gone", (*lab.Lab).Reset)
}

func (a *app) labEnd(d doc, state string, end func(*lab.Lab, context.Context) (bool, error)) *cobra.Command {
	var name *string
	cmd := a.command(d, func(ctx context.Context, _ []string) (int, error) {
		l, err := lab.Find(*name)
		if err != nil {
			return 0, err
		}
		_, never := os.Lstat(l.Dir())
		changed, err := end(l, ctx)
		switch {
		case err != nil:
			return 0, err
		case !changed && errors.Is(never, os.ErrNotExist):
			fmt.Fprintf(a.stdout, "there is no lab %s: nothing to do\n", l.Name)
		case !changed:
			fmt.Fprintf(a.stdout, "lab %s is %s already\n", l.Name, state)
		default:
			fmt.Fprintf(a.stdout, "lab %s is %s\n", l.Name, state)
		}
		return report.ExitOK, nil
	})
	name = a.labName(cmd)
	return cmd
}

func (a *app) labStatus() *cobra.Command {
	return a.command(doc{
		use:     "status",
		short:   "List the labs of this machine",
		codes:   "  0    the labs were listed\n  2    wrong words, not root\n  3    a lab's files could not be read\n",
		example: program + " lab status",
		noHost:  true,
	}, func(context.Context, []string) (int, error) {
		labs, err := lab.DefaultStore().List()
		if err != nil {
			return 0, err
		}
		if len(labs) == 0 {
			fmt.Fprintln(a.stdout, "no labs")
			return report.ExitOK, nil
		}
		table := report.NewTable("NAME", "STATE", "PID", "REFERENCE", "ROOT").Fit(a.style().Width)
		for _, l := range labs {
			s, err := l.Status()
			if err != nil {
				return 0, err
			}
			state, pid, reference := "down", "-", "-"
			if s.Up {
				state, pid = "up", fmt.Sprint(s.PID)
			}
			if s.Reference {
				reference = "yes"
			}
			table.Add(s.Name, state, pid, reference, s.RootFS)
		}
		return report.ExitOK, table.Write(a.stdout)
	})
}

// labInitVerb is what lab up runs as the lab's first process; it comes back
// only when it failed.
func (a *app) labInitVerb() *cobra.Command {
	cmd := a.command(doc{
		use:     labInit,
		short:   "Become the first process of a lab (run by lab up)",
		example: program + " lab up",
	}, func(context.Context, []string) (int, error) { return 0, lab.Init() })
	cmd.Hidden = true
	return cmd
}
