package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"agentworks-deploy/internal/fleet"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/slotcheck"
)

// sampleRelease lies beside the program; it is what a lab gets without --release.
const sampleRelease = "sample-release"

func (a *app) deploy() *cobra.Command {
	var ask fleet.Deploy
	var m many
	var cmd *cobra.Command
	cmd = a.command(doc{
		use:   "deploy (<host>… | --all)",
		short: "Make a release live on a host, and prove it",
		long: `Send a release, verify every byte, make it live in one step, restart the services,
judge their health, and run the self-test at level full. Whatever ends a deploy, its last line
says what runs now, or where that cannot be known from here how to see. Before the switch the
host stays as it was; after it nothing is rolled back, and the line names the command that goes
back: --release with the id of a release that lies on the host, of which nothing is sent. What
is live already, by its id or, where the build brought no manifest.json, by its content, is only
looked at and tested. Nothing removes old releases yet.
No step needs root: a host that is not provisioned is refused, unless --provision
runs that verb first over the admin channel. A lab is always provisioned first, and
its default release is the sample release beside this program.`,
		codes: `  0    the release is live, its services are healthy, the self-test passed
  1    it is not, or not all of that
  2    wrong words: flag, host file, unknown host or release, a release that is none
  3    the host could not be reached or the deploy could not finish
  4    another deploy holds the lock
  130  interrupted
`,
		example: program + " deploy lab\n" + program + " deploy rts --release build/release.tar.gz\n" + program + " deploy rts --release video-studio-5f0c9a1e-20261004120000\n" +
			program + " deploy studio-1 studio-2 studio-3 --canary --max-parallel 2 --release build/release.tar.gz",
		args: m.given,
	}, func(ctx context.Context, args []string) (int, error) {
		list, err := m.load(a, args)
		if err != nil {
			return 0, err
		}
		asks := map[string]fleet.Deploy{}
		for _, host := range list {
			if asks[host.Name], err = a.asked(ask, host, cmd.Flags().Changed); err != nil {
				return 0, err
			}
		}
		if len(list) > 1 {
			return a.deployMany(ctx, &m, list, asks)
		}
		done, err := withFleet(a, func(f *fleet.Fleet) (fleet.Deployed, error) { return f.Deploy(ctx, list[0], asks[list[0].Name]) })
		return a.deployed(list[0], done, ask.Strict, err)
	})
	f := cmd.Flags()
	m.addFlags(cmd, 1)
	f.StringVar(&ask.Release, "release", "", "folder with the release, a tar of it (plain or gzip), or the id of one that lies on the host (a lab's default: the sample release)")
	f.BoolVar(&ask.Plan, "plan", false, "say what would be done and change nothing")
	f.BoolVar(&ask.Provision, "provision", false, "provision the host first, over its admin channel (a lab's default)")
	f.BoolVar(&ask.Strict, "strict", false, "a WARN of the self-test or of the secrets' admission fails as well")
	return cmd
}

// asked is what a deploy of host is asked for.
func (a *app) asked(ask fleet.Deploy, host *hosts.Host, given func(flag string) bool) (fleet.Deploy, error) {
	lab := isLab(host)
	ask.Programs = filepath.Dir(a.self)
	if ask.Release == "" {
		if given("release") {
			return ask, report.Coded(report.ExitUsage, "--release is empty: name a folder, a tar of one, or the id of a release on the host")
		}
		if !lab {
			return ask, report.Coded(report.ExitUsage, "deploy %s needs --release: a folder, a tar of one, or the id of a release on the host", host.Name)
		}
		ask.Release = filepath.Join(ask.Programs, sampleRelease)
	}
	if !given("provision") {
		ask.Provision = lab
	}
	return ask, nil
}

// deployMany deploys to several hosts, each with what came of it in their order.
func (a *app) deployMany(ctx context.Context, m *many, list []*hosts.Host, asks map[string]fleet.Deploy) (int, error) {
	var bad error
	all, err := eachHost(ctx, a, m, list, func(ctx context.Context, f *fleet.Fleet, host *hosts.Host) (fleet.Deployed, int, error) {
		done, err := f.Deploy(ctx, host, asks[host.Name])
		code := done.Exit
		if err != nil {
			code = report.CodeOf(err)
		}
		return done, code, err
	}, func(r fleet.Result[fleet.Deployed]) []report.Report {
		if _, err := fmt.Fprintf(a.stdout, "== %s ==\n", r.Host.Name); err != nil {
			bad = errors.Join(bad, err)
		}
		if _, err := a.deployed(r.Host, r.Value, asks[r.Host.Name].Strict, r.Err); err != nil {
			fmt.Fprintf(a.stderr, "%s: %s: %s\n", program, r.Host.Name, report.Escape(err.Error()))
		}
		if _, err := fmt.Fprintln(a.stdout); err != nil {
			bad = errors.Join(bad, err)
		}
		rows := slices.Concat(r.Value.Provision, r.Value.Steps, r.Value.SelfTest)
		if len(rows) == 0 {
			return []report.Report{unanswered(r.Host.Name, "", r.Exit, r.Err)}
		}
		done := report.New(r.Host.Name, "", r.Value.Release, rows, false)
		done.Exit = r.Exit
		return []report.Report{done}
	})
	if err != nil {
		return all.Exit, err
	}
	return all.Exit, errors.Join(bad, report.WriteMatrix(a.stdout, all.Reports, a.style()))
}

// isLab tells whether both channels of h lead to a lab.
func isLab(h *hosts.Host) bool {
	return h.Channels.Admin.Lab != nil && h.Channels.ForService().Lab != nil
}

// deployed prints what came of a deploy: its steps, the self-test, and where
// something failed what it failed to prove.
func (a *app) deployed(host *hosts.Host, done fleet.Deployed, strict bool, err error) (int, error) {
	defer a.tellFixes(host, slices.Concat(done.Provision, done.Steps, done.SelfTest))
	var bad error
	if len(done.Provision) > 0 {
		bad = report.WriteSteps(a.stdout, "provision", done.Provision, a.style())
	}
	if len(done.Steps) > 0 {
		bad = errors.Join(bad, report.WriteSteps(a.stdout, "deploy", done.Steps, a.style()))
	}
	if len(done.SelfTest) == 0 {
		return done.Exit, errors.Join(err, bad)
	}
	proof := report.New(host.Name, string(slotcheck.Full), done.Release, done.SelfTest, strict)
	bad = errors.Join(bad, proof.Write(a.stdout, report.Formats()[0], a.style()))
	if err == nil && proof.Exit != report.ExitOK {
		err = report.Coded(done.Exit, "release %s is live on %s and its services are healthy, but the self-test did not pass; nothing was rolled back", done.Release, host.Name)
		if done.Back != "" {
			err = fmt.Errorf("%w; %s", err, done.Back)
		}
	}
	if err == nil && bad == nil {
		_, bad = fmt.Fprintf(a.stdout, "deployed: %s is live on %s\n", done.Release, host.Name)
	}
	return done.Exit, errors.Join(err, bad)
}
