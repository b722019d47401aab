package slotcheck_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"agentworks-deploy/internal/lab/breakages"
	"agentworks-deploy/internal/report"
)

var update = flag.Bool("update", false, "write the golden files anew")

// breakBy breaks the lab as lab break does; heal takes everything back.
func (o operator) breakBy(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		b, err := breakages.Find(name)
		if err == nil {
			err = b.Break(context.Background(), o.Lab.Lab)
		}
		if err != nil {
			o.heal(t)
			t.Fatal(err)
		}
	}
}

func (o operator) heal(t testing.TB) {
	t.Helper()
	if _, err := breakages.Heal(context.Background(), o.Lab.Lab); err != nil {
		t.Fatal(err)
	}
}

// fixes are the commands that a report prints, each once.
func fixes(r report.Report) []report.Fix {
	var found []report.Fix
	for _, row := range r.Rows {
		if row.State == report.Fail && row.Fix != nil && len(row.Fix.Argv) > 0 &&
			!slices.ContainsFunc(found, func(f report.Fix) bool { return slices.Equal(f.Argv, row.Fix.Argv) }) {
			found = append(found, *row.Fix)
		}
	}
	return found
}

// failed are the checks of which a row says FAIL, sorted.
func failed(r report.Report) []string {
	var checks []string
	for _, row := range r.Rows {
		if row.State == report.Fail {
			checks = append(checks, row.Check)
		}
	}
	slices.Sort(checks)
	return slices.Compact(checks)
}

// tell writes the fixes that a report prints, each with the rows that print it.
func tell(b *strings.Builder, o operator, r report.Report) {
	var order []string
	rows := map[string][]string{}
	for _, row := range r.Rows {
		if row.State != report.Fail {
			continue
		}
		fix := "no fix"
		if row.Fix != nil {
			fix = stable(o, row.Fix.Line())
		}
		if rows[fix] == nil {
			order = append(order, fix)
		}
		rows[fix] = append(rows[fix], row.Check)
	}
	for _, fix := range order {
		fmt.Fprintf(b, "    %s\n", fix)
		var checks []string
		for _, check := range rows[fix] {
			if !slices.ContainsFunc(checks, func(c string) bool { return strings.HasSuffix(c, " "+check) }) {
				n := len(slices.DeleteFunc(slices.Clone(rows[fix]), func(c string) bool { return c != check }))
				checks = append(checks, fmt.Sprintf("%d %s", n, check))
			}
		}
		if len(checks) > 8 { // all that need a command
			checks = append(checks[:5], "and more")
		}
		fmt.Fprintf(b, "        %s\n", strings.Join(checks, ", "))
	}
}

// TestS02EveryBreakageIsFoundAndItsFixHeals breaks the host in one way at a
// time. The golden table says for each which rows fail and with which fix; each
// fix is run as it is printed, and then no row fails. What the breakage says of
// itself is the same, and taking it back leaves the host as it was.
func TestS02EveryBreakageIsFoundAndItsFixHeals(t *testing.T) {
	o := reference(t)
	if r := o.audit(t, "--level", "full"); r.Exit != 0 {
		t.Fatalf("the host is not healthy to begin with:\n%s", text(r))
	}
	all, err := breakages.All()
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, b := range all {
		t.Run(b.Name, func(t *testing.T) {
			healthy := o.everything(t)
			o.breakBy(t, b.Name)
			defer o.heal(t) // also what no fix takes away, such as a release of another name
			before := o.everything(t)
			r := o.audit(t, "--level", b.Level)
			unchanged(t, before, o.everything(t), "the audit of the broken host")
			fmt.Fprintf(&table, "%s (%s): %s\n", b.Name, b.Level, b.Story)
			tell(&table, o, r)
			if r.Exit != report.ExitState {
				t.Errorf("exit %d, want 1:\n%s", r.Exit, text(r))
			}
			if rows := slices.Sorted(slices.Values(b.Rows)); !slices.Equal(failed(r), rows) {
				t.Errorf("it is found by %v, and says %v", failed(r), rows)
			}
			if b.Level == "full" {
				if basic := o.audit(t); basic.Exit != 0 && !slices.Contains(b.Rows, failed(basic)[0]) {
					t.Errorf("level basic:\n%s", text(basic))
				}
			}
			o.heal(t)
			if diff := healthy.Diff(o.everything(t)); len(diff) > 0 {
				t.Errorf("lab heal leaves:\n%s", strings.Join(diff, "\n"))
			}
			o.breakBy(t, b.Name)
			for _, f := range fixes(r) {
				o.apply(t, f)
			}
			healed := o.audit(t, "--level", b.Level)
			fmt.Fprintf(&table, "    healed: %v\n", healed.Exit == 0)
			if healed.Exit != 0 {
				t.Errorf("after %v:\n%s\nbefore:\n%s", fixes(r), text(healed), text(r))
			}
		})
	}
	if r := o.audit(t, "--level", "full"); r.Exit != 0 {
		t.Errorf("the host is left broken:\n%s", text(r))
	}
	golden(t, "testdata/breakages.golden", table.String())
}

// pair is two breakages at once. The second is made after the first, and what it
// stops may never come to the first.
type pair struct {
	hidden, hider string
	level         string
	// right are checks that the second puts right again, or that say nothing
	// wrong with both.
	right []string
}

// pairs are such that one hides another, wholly or for some rows.
func pairs() []pair {
	return []pair{
		{hidden: "launcher-0700", hider: "releases-0700"},
		{hidden: "launcher-refuses", hider: "releases-0700"},
		{hidden: "launcher-fails-on-grant", hider: "launcher-0700"},
		{hidden: "launcher-fails-on-grant", hider: "allowed-cwd"},
		{hidden: "launcher-enforces-nothing", hider: "allowed-exec"},
		{hidden: "launcher-enforces-nothing", hider: "no-user-namespaces"},
		{hidden: "launcher-refuses", hider: "no-user-namespaces"},
		{hidden: "no-user-namespaces", hider: "sudo-rule-missing"},
		{hidden: "releases-0700", hider: "sudo-rule-for-another-path"},
		{hidden: "allowed-exec", hider: "sudo-rule-with-a-dot"},
		{hidden: "releases-0700", hider: "allowed-exec"},
		{hidden: "allowed-cwd", hider: "config-writable"},
		{hidden: "docs-root", hider: "config-missing"},
		{hidden: "allowed-exec", hider: "table-root-root"},
		{hidden: "releases-0700", hider: "table-absent"},
		{hidden: "launcher-0700", hider: "table-not-json"},
		{hidden: "table-root-root", hider: "table-0644", right: []string{"slot-table-read"}},
		{hidden: "docs-root", hider: "table-of-the-service"},
		{hidden: "tree-of-another-slot", hider: "account-missing", level: "full"},
		{hidden: "freed-slot-not-empty", hider: "releases-0700", level: "full"},
		{hidden: "service-before-its-groups", hider: "old-release-still-runs", level: "full"},
	}
}

// TestS02PairsHideNoOtherRow: with two breakages at once, a row that either of
// them breaks is no PASS, a row that neither touches is what it was, and the
// hider's own rows are there. Their fixes, layer by layer, heal both.
func TestS02PairsHideNoOtherRow(t *testing.T) {
	o := reference(t)
	alone := map[string]map[string]report.State{}
	single := func(t *testing.T, level string, names ...string) map[string]report.State {
		key := fmt.Sprint(level, names)
		if alone[key] == nil {
			o.breakBy(t, names...)
			alone[key] = byName(o.audit(t, "--level", level))
			o.heal(t)
		}
		return alone[key]
	}
	var table strings.Builder
	for _, p := range pairs() {
		if p.level == "" {
			p.level = "basic"
		}
		t.Run(p.hidden+" under "+p.hider, func(t *testing.T) {
			first, second := single(t, p.level, p.hidden), single(t, p.level, p.hider)
			o.breakBy(t, p.hidden, p.hider)
			defer o.heal(t)
			r := o.audit(t, "--level", p.level)
			fmt.Fprintf(&table, "%s under %s (%s)\n", p.hidden, p.hider, p.level)
			tell(&table, o, r)
			both := byName(r)
			for row, state := range both {
				check, _, _ := strings.Cut(row, " ")
				broken := first[row] == report.Fail || second[row] == report.Fail
				switch {
				case slices.Contains(p.right, check):
				case broken && state == report.Pass:
					t.Errorf("PASS %s, which is FAIL alone", row)
				case !broken && first[row] == second[row] && state != first[row]:
					t.Errorf("%s %s, which is %s with either", state, row, first[row])
				}
			}
			for row, state := range second {
				check, _, _ := strings.Cut(row, " ")
				if state == report.Fail && both[row] != report.Fail && !slices.Contains(p.right, check) {
					t.Errorf("%q %s, which %s alone fails", both[row], row, p.hider)
				}
			}
			if r.Exit != report.ExitState {
				t.Errorf("exit %d, want 1", r.Exit)
			}
			rounds := 0
			for ; r.Exit != 0 && rounds < 3; rounds++ {
				// On the host first: a deploy judges the whole of it at its end.
				found := fixes(r)
				slices.SortStableFunc(found, func(a, b report.Fix) int { return strings.Compare(a.Where, b.Where) })
				for _, f := range found {
					o.apply(t, f)
				}
				r = o.audit(t, "--level", p.level)
			}
			if r.Exit != 0 {
				t.Errorf("after %d rounds of fixes:\n%s", rounds, text(r))
			}
			fmt.Fprintf(&table, "    healed: %v, after %d round(s) of fixes\n", r.Exit == 0, rounds)
		})
	}
	if r := o.audit(t, "--level", "full"); r.Exit != 0 {
		t.Errorf("the host is left broken:\n%s", text(r))
	}
	golden(t, "testdata/pairs.golden", table.String())
}

// byName gives each row's state.
func byName(r report.Report) map[string]report.State {
	rows := map[string]report.State{}
	for _, row := range r.Rows {
		rows[name(row)] = row.State
	}
	return rows
}

// stable takes out of a line what differs from run to run.
func stable(o operator, line string) string {
	words := strings.Fields(line)
	for i, w := range words {
		switch {
		case i > 0 && words[i-1] == "-inum":
			words[i] = "INODE"
		case strings.HasPrefix(w, "'user@"):
			words[i] = "'user@UID.service'"
		case strings.Contains(w, "/releases/vs-"):
			before, rest, _ := strings.Cut(w, "/releases/vs-")
			_, after, _ := strings.Cut(rest, "/")
			words[i] = before + "/releases/ID/" + after
		}
	}
	return strings.Join(words, " ")
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update && !t.Failed() {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; this run says:\n%s", file, got)
	}
}
