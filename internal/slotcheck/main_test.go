package slotcheck_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentworks-deploy/internal/lab/labtest"
	"agentworks-deploy/internal/report"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main(m)) }

// operator sits at the machine and audits one lab with the real programs.
type operator struct {
	*labtest.Lab
	bin   string
	hosts string // folder of the host files
	host  string // name of the audited one
}

// reference is the package's shared lab: provisioned, deployed to, u1 in slot01
// and u2 in slot02. A test that breaks it puts it right again.
func reference(t testing.TB) operator {
	t.Helper()
	o := operator{Lab: labtest.Shared(t, labtest.Reference()), bin: labtest.Binaries(t), hosts: "../../hosts", host: "lab"}
	prepared.Do(func() {
		o.must(t, "provision", "lab")
		o.must(t, "slots", "assign", "lab", "u1", "slot01")
		o.must(t, "slots", "assign", "lab", "u2", "slot02")
		o.must(t, "deploy", "lab")
	})
	return o
}

var prepared sync.Once

// run is one command line of the operator.
func (o operator) run(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return o.runOn(t, o.Name, args...)
}

func (o operator) runOn(t testing.TB, lab string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return labtest.Finish(t, o.command(lab, args...))
}

func (o operator) command(lab string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(o.bin, "agentworks-deploy"), args...)
	cmd.Env = append(os.Environ(), "AGENTWORKS_DEPLOY_LAB="+lab, "AGENTWORKS_DEPLOY_HOSTS_DIR="+o.hosts)
	return cmd
}

func (o operator) must(t testing.TB, args ...string) string {
	t.Helper()
	stdout, stderr, code := o.run(t, args...)
	if code != 0 {
		t.Fatalf("%q: exit %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

// audit is slotcheck's answer, whatever its verdict.
func (o operator) audit(t testing.TB, args ...string) report.Report {
	t.Helper()
	stdout, stderr, code := o.run(t, append([]string{"slotcheck", o.host, "--format", "json"}, args...)...)
	var r report.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("slotcheck: exit %d: %v\n%s%s", code, err, stdout, stderr)
	}
	if r.Exit != code {
		t.Errorf("slotcheck ended with %d, its document says %d", code, r.Exit)
	}
	return r
}

// name is a row as the golden tables and messages have it.
func name(r report.Row) string {
	if r.Slot == "" {
		return r.Check
	}
	return r.Check + " [" + r.Slot + "]"
}

// of gives the names of the rows in one of the states.
func of(r report.Report, states ...report.State) []string {
	var names []string
	for _, row := range r.Rows {
		if slices.Contains(states, row.State) {
			names = append(names, name(row))
		}
	}
	return names
}

// text is a report as a test failure shows it.
func text(r report.Report) string {
	var b strings.Builder
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "%s %s: %s", row.State, name(row), row.Detail)
		if row.Fix != nil {
			fmt.Fprintf(&b, " -- %s", row.Fix.Line())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// apply runs a fix where it says.
func (o operator) apply(t testing.TB, f report.Fix) {
	t.Helper()
	switch {
	case len(f.Argv) == 0:
		t.Fatalf("a fix without words: %+v", f)
	case f.Where == report.OnHost:
		if stdout, stderr, code := o.Exec(t, f.Argv...); code != 0 {
			t.Fatalf("fix %q: exit %d\n%s%s", f.Argv, code, stdout, stderr)
		}
	case f.Where == report.Operator && f.Argv[0] == "agentworks-deploy":
		o.must(t, f.Argv[1:]...)
	default:
		t.Fatalf("a fix for nowhere: %+v", f)
	}
}

// sh runs a script as root in the lab.
func (o operator) sh(t testing.TB, script string) string {
	t.Helper()
	return o.MustExec(t, "/bin/sh", "-euc", script)
}
