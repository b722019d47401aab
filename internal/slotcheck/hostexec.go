package slotcheck

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/platform"
	"agentworks-deploy/internal/report"
)

// checkHostExec looks for code that runs as the service outside every sandbox:
// an interpreter below a service that runs something else than the release's
// own scripts (case V-07), and retired tools in the release.
func checkHostExec(ctx context.Context, a *audit, _ subject) []report.Row {
	running, idle, err := a.services(ctx)
	if err != nil {
		return unknown(err.Error())
	}
	live, err := filepath.EvalSymlinks(a.layout.Current())
	if err != nil {
		return fail(fmt.Sprintf("current names no release: %v", cause(err)), a.deployFix())
	}
	var rows []report.Row
	looked := 0
	for _, s := range running {
		for _, p := range s.Processes {
			looked++
			rows = append(rows, a.stranger(p, live)...)
		}
	}
	found, err := platform.Retired(ctx, live, a.ask.Host.Retired)
	switch {
	case err != nil:
		rows = append(rows, unknown(fmt.Sprintf("search %s for retired tools: %v", filepath.Base(live), err))...)
	case len(found) > 0:
		rows = append(rows, fail(fmt.Sprintf("the release holds retired tools: %s", strings.Join(found, ", ")),
			noFix(report.Operator, "deploy a release without them"))...)
	}
	switch {
	case rows != nil:
		return rows
	case len(running) == 0:
		return skip("no service runs: " + strings.Join(idle, ", "))
	}
	return pass(fmt.Sprintf("%d process(es) of the services run nothing but the release", looked))
}

// stranger judges one process. It names program, pid and parent, and never the
// words, which may hold anything.
func (a *audit) stranger(p accounts.Process, live string) []report.Row {
	exe, err := a.exe(p.PID)
	if accounts.Gone(err) {
		return nil
	}
	if err != nil {
		return unknown(fmt.Sprintf("which file pid %d runs cannot be read: %v", p.PID, cause(err)))
	}
	in, ok := interpreterOf(exe)
	if !ok {
		return nil
	}
	dir := filepath.Join(a.sys.Proc, strconv.Itoa(p.PID))
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if accounts.Gone(err) || err == nil && len(line) == 0 { // it ended, or is about to
		return nil
	}
	if err != nil {
		return unknown(fmt.Sprintf("the command line of pid %d cannot be read: %v", p.PID, cause(err)))
	}
	words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	w := in.runs(words[1:])
	text := map[programKind]string{
		fromWords: "code from its command line", fromStdin: "code from its standard input", fromModule: "a module", fromScript: "a script outside the release",
	}[w.Kind]
	if w.Kind == fromScript {
		script := w.Script
		if !path.IsAbs(script) {
			cwd, err := os.Readlink(filepath.Join(dir, "cwd"))
			if accounts.Gone(err) {
				return nil
			}
			script = filepath.Join(cwd, script)
		}
		if script = resolve(script); within(script, live) {
			return nil
		}
		for _, allowed := range a.ask.Host.HostPrograms {
			if within(script, resolve(allowed)) {
				return nil
			}
		}
	}
	parent := "pid " + strconv.Itoa(p.Parent)
	if pp, err := accounts.ReadProcess(a.sys.Proc, p.Parent); err == nil {
		parent = fmt.Sprintf("%s, pid %d", pp.Name, pp.PID)
	}
	return fail(fmt.Sprintf("%s (pid %d, started by %s) runs %s as the service account", path.Base(exe), p.PID, parent, text),
		noFix(report.OnHost, fmt.Sprintf("find out what starts it before ending pid %d; a script that may run so belongs into host_programs", p.PID)))
}
