package slotcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/shell"
	"agentworks-deploy/internal/sandbox/slots"
)

// slotChecks are asked of every slot, in this order.
func slotChecks(level Level) []check {
	checks := []check{
		{"runner-reachable", checkRunnerReachable},
		{"pwd-docs-root", pwdDocsRoot},
		{"pwd-workflow", pwdWorkflow},
		{"pwd-crew-project", pwdCrewProject},
		{"pwd-code-project", pwdCodeProject},
	}
	if level == Full {
		checks = append(checks, confinementChecks()...)
	}
	return checks
}

// hostChecks are asked once, after the slots.
func hostChecks(level Level) []check {
	var checks []check
	if level == Full {
		checks = append(checks, hostRows()...)
	}
	return append(checks, check{"path-writable", checkWriters}, check{"releases-listable", checkReleasesListable}, check{"acl-present", checkACLPresent})
}

// refused turns a refusal into its row; before names what was asked for.
func refused(before string, r refusal) []report.Row {
	if before != "" {
		before += ": "
	}
	return []report.Row{{State: report.Fail, Detail: before + r.Detail, Cause: r.Cause, Fix: r.Fix}}
}

// unanswered is the row of a probe that has no outcome: the platform's own rules
// refuse it, or nobody knows.
func (a *audit) unanswered(before string, err error) []report.Row {
	if errors.Is(err, errNoLauncher) {
		return refused(before, a.noLauncher())
	}
	if no, ok := errors.AsType[errRefused](err); ok {
		return refused(before, refusal{Detail: a.hide.words(no.Error()), Cause: "the shell's grant rules refuse", Fix: a.provisionFix()})
	}
	if noStart(err) {
		if r, found := a.sudoFault(""); found {
			return refused(before, r)
		}
	}
	if before != "" {
		before += ": "
	}
	return unknown(before + a.hide.words(err.Error()))
}

// noLauncher is the refusal of every probe while there is nothing to start. A
// folder that keeps the service from it keeps every slot from it as well.
func (a *audit) noLauncher() refusal {
	if errors.Is(a.launcherErr, fs.ErrPermission) {
		name := a.layout.Product
		if at, fix := a.closedTo(filepath.Join(a.layout.Current(), "bin"), a.subject(a.service, "")); fix != nil {
			return refusal{Detail: at + notTraversable + name, Cause: at + " is not traversable", Fix: fix}
		}
	}
	return refusal{Detail: a.launcherErr.Error(), Cause: a.launcherErr.Error(), Fix: a.deployFix()}
}

// signalled and a signal's number are the exit code of a program that it ended.
const signalled = 128

// checkRunnerReachable starts the launcher itself, without words: whatever it
// answers, it was reached. So ACLs, links and mounts count as they do for a
// user's command, which a look at modes would miss (case S-14).
func checkRunnerReachable(ctx context.Context, a *audit, s subject) []report.Row {
	if a.launcherErr != nil {
		return refused("", a.noLauncher())
	}
	dir := a.probeDir(s)
	o, err := a.request(ctx, s.Slot, slots.Request{Argv: []string{a.launcher}, Cwd: dir, Env: []string{}})
	if err != nil {
		return a.unanswered("", err)
	}
	if st := o.stage(); st == stageSudo || st == stageSlotctl {
		return refused("", a.explain(o, dir, s))
	}
	if o.Exit > signalled && o.Stderr == "" {
		return refused("", refusal{Detail: fmt.Sprintf("%s ended by signal %d and answered nothing", a.launcher, o.Exit-signalled),
			Cause: "the launcher " + a.launcher + " cannot run", Fix: a.deployFix()})
	}
	return pass("every folder down to the launcher is traversable")
}

func pwdDocsRoot(ctx context.Context, a *audit, s subject) []report.Row {
	return a.pwd(ctx, s, folder{Path: a.docs, Show: "<docs>"}, shell.Command{}, false)
}

func pwdWorkflow(ctx context.Context, a *audit, s subject) []report.Row {
	f, why, err := a.workflow()
	if f.Path == "" {
		return a.noFolder(why, err)
	}
	return a.pwd(ctx, s, f, shell.Command{BrowserSession: session("workflow", f.Path)}, false)
}

func pwdCrewProject(ctx context.Context, a *audit, s subject) []report.Row {
	f, why, err := a.project(s, crewProjects)
	if f.Path == "" {
		return a.noFolder(why, err)
	}
	return a.pwd(ctx, s, f, shell.Command{BrowserSession: session("project", f.Path)}, true)
}

// pwdCodeProject also carries the slot's home, which coding tools write to.
func pwdCodeProject(ctx context.Context, a *audit, s subject) []report.Row {
	f, why, err := a.project(s, codeProjects)
	if f.Path == "" {
		return a.noFolder(why, err)
	}
	return a.pwd(ctx, s, f, shell.Command{BrowserSession: session("project", f.Path), Write: []string{a.layout.SlotHome(s.Slot)}}, true)
}

func (a *audit) noFolder(why string, err error) []report.Row {
	if err != nil {
		return unknown(a.hide.words(err.Error()))
	}
	return skip(why)
}

// pwd runs pwd in f through the chain; cmd says what more the command carries.
// The folder is granted for reading alone, so that nothing is prepared in it.
// With unreadable, a path that the slot may not look at is granted behind the
// filter's back: only so is a launcher found that fails on one (case L-01).
func (a *audit) pwd(ctx context.Context, s subject, f folder, cmd shell.Command, unreadable bool) []report.Row {
	if a.launcherErr != nil {
		return refused(f.Show, a.noLauncher())
	}
	closed := ""
	if unreadable {
		if closed = a.closedPath(s, cmd.BrowserSession); closed == "" {
			return unknown(f.Show + ": there is no folder closed to the slot to try the launcher with")
		}
		cmd.Unfiltered = []string{closed}
	}
	cmd.Slot, cmd.Dir, cmd.Read, cmd.Argv = s.Slot, f.Path, []string{f.Path}, []string{"/bin/pwd"}
	o, err := a.wrapped(ctx, a.chain, cmd)
	printed := strings.TrimSuffix(o.Stdout, "\n")
	switch {
	case err != nil:
		return a.unanswered(f.Show, err)
	case o.Exit != 0:
		return refused(f.Show, a.explain(o, f.Path, s))
	case printed != f.Path && printed != resolve(f.Path):
		return refused(f.Show, refusal{Detail: fmt.Sprintf("pwd printed %q", a.hide.words(printed)),
			Cause: "the launcher " + a.launcher + " does not run commands", Fix: a.deployFix()})
	case closed != "" && !skipped(o.Stderr, closed):
		return refused(f.Show, refusal{Detail: "the launcher did not say that it left out a path which the slot may not look at",
			Cause: "the launcher " + a.launcher + " does not tell what it leaves out", Fix: a.deployFix()})
	}
	return pass(f.Show)
}

// closedPath is a path that the slot may not look at: the session's own profile
// where profiles are, else one below another folder of the app's.
func (a *audit) closedPath(s subject, session string) string {
	for _, p := range []string{
		a.chain.Places.SessionPaths(session)[0],
		filepath.Join(a.stateRoot(), "slotcheck"),
		filepath.Join(a.layout.DocsConfig(), "slotcheck"),
		filepath.Join(a.layout.SlotRuns(), ".sessions", "slotcheck"),
	} {
		if a.closedOn(p, s) {
			return p
		}
	}
	return ""
}

// closedOn says whether a folder on the way to p is there and shut to the slot.
func (a *audit) closedOn(p string, s subject) bool {
	for _, step := range way(filepath.Dir(p)) {
		acc, err := readAccess(step)
		if err != nil {
			return false
		}
		if !acc.decide(s.Account.UID, s.Groups, permX).Granted {
			return true
		}
	}
	return false
}
