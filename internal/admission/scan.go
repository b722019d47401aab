package admission

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// Facts is what the host's side knows: names only, no value and no user's id,
// so that it may cross the channel to the side that asks Vault.
type Facts struct {
	Manifests  int         `json:"manifests"`
	Selections []Selection `json:"selections"`
	Gateway    *Grants     `json:"gateway,omitempty"` // nil: not configured or not checked
	// GatewayFailed says that a gateway is configured and did not answer.
	GatewayFailed bool         `json:"gateway_failed,omitempty"`
	Rows          []report.Row `json:"rows,omitempty"`
}

// Grants names what the Platform group was granted, of the selected names.
type Grants map[string]bool

// Environment is the agent's: Lookup gives "" for an absent key, Names lists
// all keys. Only GLOBAL_SECRET_ names and the gateway's and Vault's own
// settings are ever asked for.
type Environment struct {
	Lookup func(key string) string
	Names  []string
}

// Collect reads the manifests and stores below docs and asks the gateway. It
// fails only where the scan itself cannot run (exit 3).
func Collect(ctx context.Context, docs string, env Environment) (*Facts, error) {
	root, err := safefs.OpenFolder(docs)
	if err != nil {
		return nil, report.Coded(report.ExitUnfinished, "open the docs root: %w", err)
	}
	defer root.Close()
	w := &walker{}
	if err := w.walk(ctx, root); err != nil {
		return nil, err
	}
	projects := map[string]bool{}
	for _, s := range w.selections {
		projects[s.project] = true
	}
	held, err := readStores(ctx, root, projects, env.Names, w.warnf)
	if err != nil {
		return nil, err
	}
	f := &Facts{Manifests: w.manifests, Selections: w.selections}
	for i := range f.Selections {
		s := &f.Selections[i]
		s.Local, s.Shared = held.holds(*s)
	}
	for _, text := range w.notes {
		f.Rows = append(f.Rows, report.Row{State: report.Warn, Check: "secret-manifest", Detail: text})
	}
	if w.unnoted > 0 {
		f.Rows = append(f.Rows, report.Row{State: report.Warn, Check: "secret-manifest", Detail: fmt.Sprintf("%d more of these", w.unnoted)})
	}
	if w.unread > 0 {
		f.Rows = append(f.Rows, report.Row{State: report.Warn, Check: "secret-manifest",
			Detail: fmt.Sprintf("%d manifest(s) not checked: a scan reads at most %d with %d names", w.unread, maxManifests, maxSelections)})
	}
	granted, err := askGateway(ctx, env.Lookup)
	switch {
	case errors.Is(err, errNotConfigured):
	case err != nil:
		f.GatewayFailed = true
		f.Rows = append(f.Rows, report.Row{State: report.Info, Check: "secret-gateway", Detail: "grants not checked: " + err.Error()})
	default:
		g := Grants{}
		for _, n := range f.remote() {
			g[n] = granted[n]
		}
		f.Gateway = &g
	}
	return f, nil
}

// remote are the distinct names that no project's own store answers for,
// sorted: those that Vault and the gateway are asked about.
func (f *Facts) remote() []string {
	var names []string
	for _, s := range f.Selections {
		if !s.Local {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// AskVault looks the names of f up. It answers nil where no Vault is named;
// every failure is a row of the answer.
func AskVault(ctx context.Context, c hosts.Vault, lookup func(string) string, f *Facts) *Answer {
	v, logout, err := connect(ctx, c, lookup)
	if errors.Is(err, errNotConfigured) {
		return nil
	}
	if err != nil {
		a := &Answer{}
		a.add(report.Info, "not checked: %s", explain(err, "update", "auth/approle/login"))
		return a
	}
	defer logout()
	ctx, cancel := context.WithTimeout(ctx, vaultLimit)
	defer cancel()
	return v.ask(ctx, f.remote())
}

// Judge turns what is known into rows: WARN for what a user's chat would
// stumble over, INFO for what could not be checked and how much was.
func Judge(f *Facts, v *Answer, c hosts.Vault) []report.Row {
	j := judge{facts: f, vault: v, config: c, rows: slices.Clone(f.Rows), ungranted: map[string][]Selection{}}
	if v != nil {
		j.rows = append(j.rows, v.Rows...)
	}
	if f.Gateway == nil && !f.GatewayFailed && v == nil {
		j.add(report.Info, "secret-grants", "neither Vault nor the gateway is configured: grants not checked", nil)
	}
	distinct, existence, shared, grants := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, s := range f.Selections {
		distinct[s.Name] = true
		known, there := j.exists(s)
		if known {
			existence[s.Name] = true
		}
		if known && !there {
			j.add(report.Warn, "secret-missing", fmt.Sprintf("%s: %s names %s, which exists nowhere", s.Manifest, s.Field, printable(s.Name)), j.create(s.Name))
		}
		if s.Local {
			continue // a project's own secret needs no grant
		}
		shared[s.Name] = true
		asked, granted := j.granted(s.Name)
		if asked {
			grants[s.Name] = true
		}
		if asked && !granted && (there || !known) {
			j.ungranted[s.Name] = append(j.ungranted[s.Name], s)
		}
	}
	for _, name := range sortedKeys(j.ungranted) {
		by := j.ungranted[name]
		slices.SortFunc(by, func(a, b Selection) int { return strings.Compare(a.Manifest, b.Manifest) })
		n := len(slices.CompactFunc(slices.Clone(by), func(a, b Selection) bool { return a.Manifest == b.Manifest }))
		j.add(report.Warn, "secret-no-platform-grant",
			fmt.Sprintf("%s: selected by %d manifest(s), first %s: %s", printable(name), n, by[0].Manifest, by[0].Field), j.grant(name))
	}
	m := len(distinct)
	switch {
	case f.Manifests == 0:
		j.add(report.Info, "secret-admission", "no manifests found", nil)
	case m == 0:
		j.add(report.Info, "secret-admission", fmt.Sprintf("0 secrets declared in %d manifest(s)", f.Manifests), nil)
	default:
		needs := "none needs a grant"
		if len(shared) > 0 {
			needs = fmt.Sprintf("grants checked for %d of %d that need one", len(grants), len(shared))
		}
		j.add(report.Info, "secret-admission", fmt.Sprintf("checked %d of %d selected name(s) in %d manifest(s); %s", len(existence), m, f.Manifests, needs), nil)
	}
	return j.rows
}

type judge struct {
	facts     *Facts
	vault     *Answer
	config    hosts.Vault
	rows      []report.Row
	ungranted map[string][]Selection
}

func (j *judge) add(state report.State, check, detail string, fix *report.Fix) {
	j.rows = append(j.rows, report.Row{State: state, Check: check, Detail: detail, Fix: fix})
}

// exists says whether it is known where a selected secret is, and whether it
// is anywhere.
func (j *judge) exists(s Selection) (known, there bool) {
	switch {
	case s.Local || s.Shared:
		return true, true
	case j.vault == nil:
		return true, false
	}
	there, known = j.vault.Exists[s.Name]
	return known, there
}

// granted: one source that grants is enough; "not granted" needs every
// configured source to have answered.
func (j *judge) granted(name string) (known, granted bool) {
	open := j.facts.GatewayFailed
	if j.facts.Gateway != nil {
		known = true
		granted = (*j.facts.Gateway)[name]
	}
	if j.vault != nil {
		yes, looked := j.vault.Granted[name]
		known, granted, open = known || looked, granted || yes, open || !looked
	}
	return known && (granted || !open), granted
}

func (j *judge) create(name string) *report.Fix {
	if j.vault == nil {
		return &report.Fix{Where: report.Operator, Note: "create the secret on the platform, or take its name out of the manifest"}
	}
	return &report.Fix{Where: report.Operator, Argv: []string{"vault", "kv", "put", "-mount=" + first(j.config.Mount, "secret"), join(j.config.Prefix, name), "value=-"}}
}

func (j *judge) grant(name string) *report.Fix {
	if j.vault == nil {
		return &report.Fix{Where: report.Operator, Note: "register the secret for the Platform group in the gateway"}
	}
	return &report.Fix{Where: report.Operator, Note: fmt.Sprintf("give group %s a policy with read on %s", j.config.PlatformGroup, path.Join(j.vault.DataRoot, name))}
}

func join(prefix, name string) string {
	return strings.TrimPrefix(strings.Trim(prefix, "/")+"/"+name, "/")
}
