package slotcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/sandbox/slots"
)

// configChecks look at slotctl.json once it could be read.
func configChecks() []check {
	return []check{
		{"slotctl-docs-root", checkDocsRoot},
		{"slotctl-allowed-cwd", checkAllowedCwd},
		{"slotctl-allowed-exec", checkAllowedExec},
	}
}

// maxConfig bounds what is read of slotctl.json.
const maxConfig = 1 << 20

// loadConfig reads the file beside slotctl, the only one that slotctl itself
// reads, and answers with the row about it. Config stays nil where the rest of
// the audit has no meaning.
func (a *audit) loadConfig() []report.Row {
	file := a.configFile
	data, err := safefs.ReadFile(file, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return fail(file+" does not exist", a.provisionFix())
	}
	if err != nil {
		return fail(fmt.Sprintf("%s cannot be read: %v", file, cause(err)), a.provisionFix())
	}
	c, err := slots.ParseConfig(data)
	if err != nil {
		return fail(fmt.Sprintf("%s is not valid: %v", file, err), a.provisionFix())
	}
	a.config = c
	if rows := a.rootOnly(file, filepath.Dir(file), a.slotctl); rows != nil {
		return rows
	}
	if _, err := slots.LoadConfig(file); err != nil {
		return fail(fmt.Sprintf("slotctl would not take %s: %v", file, err), a.provisionFix())
	}
	if c.SlotPrefix != a.layout.Prefix {
		return fail(fmt.Sprintf("slot_prefix is %q, and the service's slots are %q", c.SlotPrefix, a.layout.Prefix), a.provisionFix())
	}
	if told := a.settings[keyConfig]; told != "" && filepath.Clean(told) != file {
		return append(pass(file+" readable"), warn(fmt.Sprintf("the service's %s names %s, and slotctl reads %s only", keyConfig, told, file))...)
	}
	return pass(file + " readable")
}

// rootOnly finds those of paths that somebody besides root could change: who
// can, may run any program as any slot (case C-08). No group may write either,
// root's included: slotctl refuses such a config.
func (a *audit) rootOnly(paths ...string) []report.Row {
	var rows []report.Row
	for _, p := range paths {
		p = resolve(p) // a link has no mode of its own
		acc, err := readAccess(p)
		if err != nil {
			rows = append(rows, fail(fmt.Sprintf("%s cannot be looked at: %v", p, cause(err)), a.provisionFix())...)
			continue
		}
		owned, closed := acc.UID == 0, acc.Mode&0o022 == 0
		switch {
		case owned && closed:
		case !owned && !closed:
			rows = append(rows, fail(fmt.Sprintf("%s is not root's, and others may write it", p), a.provisionFix())...)
		case !owned:
			rows = append(rows, fail(p+" is not root's", hostFix("chown", "root", p))...)
		default:
			rows = append(rows, fail(fmt.Sprintf("%s can be written by others (mode %04o)", p, acc.Mode), a.closeFix(p, acc, trust{uids: []uint32{0}}))...)
		}
	}
	return rows
}

func checkDocsRoot(_ context.Context, a *audit, _ subject) []report.Row {
	if samePath(a.config.DocsRoot, a.docs) {
		return pass("docs_root = " + a.config.DocsRoot)
	}
	return fail(fmt.Sprintf("docs_root is %q, and the service's docs root is %s", a.config.DocsRoot, a.docs), a.docsFix())
}

func checkAllowedCwd(_ context.Context, a *audit, _ subject) []report.Row {
	for _, root := range a.config.AllowedCwd {
		if within(resolve(a.docs), resolve(root)) {
			return pass("allowed_cwd covers the docs root")
		}
	}
	return fail(fmt.Sprintf("allowed_cwd does not cover the docs root %s: it lists %s",
		a.docs, strings.Join(a.config.AllowedCwd, ", ")), a.docsFix())
}

// docsFix provisions again, unless that would write another docs root than the
// service's: then somebody has to say which is right (case P-01).
func (a *audit) docsFix() *report.Fix {
	if told := a.ask.Host.Layout().Docs; !samePath(told, a.docs) {
		return noFix(report.Operator, fmt.Sprintf("the host file's paths.docs is %s and the service's %s is %s: make them one, then %s provision",
			told, keyDocs, a.docs, program))
	}
	return a.provisionFix()
}

func checkAllowedExec(_ context.Context, a *audit, _ subject) []report.Row {
	if a.launcherErr != nil {
		return refused("", a.noLauncher())
	}
	if !a.config.AllowsProgram(a.launcher) {
		return fail(fmt.Sprintf("allowed_exec does not list %s", a.launcher), a.provisionFix())
	}
	// What slotctl starts itself is not confined: of other programs than the
	// launcher it judges the words of these two alone.
	for _, pattern := range a.config.AllowedExec {
		if filepath.Base(pattern) != filepath.Base(a.launcher) && pattern != "/usr/bin/tmux" && pattern != "/usr/bin/chmod" {
			return fail(fmt.Sprintf("allowed_exec lists %s besides, which slotctl would start without the launcher", pattern), a.provisionFix())
		}
	}
	return pass("allowed_exec lists " + a.launcher)
}

// samePath compares two folders by name and, where the names differ, by what
// their links lead to.
func samePath(p, q string) bool {
	return filepath.Clean(p) == filepath.Clean(q) || (p != "" && q != "" && resolve(p) == resolve(q))
}

// resolve follows links; a path that does not exist stays as it is.
func resolve(p string) string {
	if r, err := filepath.EvalSymlinks(p); err == nil {
		return r
	}
	return filepath.Clean(p)
}

func within(p, root string) bool {
	return p == root || root == "/" || strings.HasPrefix(p, root+"/")
}
