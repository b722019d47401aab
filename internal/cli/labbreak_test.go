package cli

import (
	"strings"
	"testing"

	"agentworks-deploy/internal/lab/breakages"
	"agentworks-deploy/internal/lab/labtest"
)

func TestLabBreakTellsWhatThereIs(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	code, stdout, stderr := deployed(t, l, "lab", "break", "--list")
	all, err := breakages.All()
	if err != nil || code != 0 || stderr != "" {
		t.Fatalf("exit %d, %v\n%s", code, err, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")[1:]
	if len(lines) != len(all) {
		t.Fatalf("%d lines for %d breakages:\n%s", len(lines), len(all), stdout)
	}
	for i, b := range all {
		if !strings.HasPrefix(lines[i], b.Name+" ") || !strings.Contains(lines[i], b.Story) || !strings.Contains(lines[i], strings.Join(b.Rows, ", ")) {
			t.Errorf("line %d says of %s: %s", i+1, b.Name, lines[i])
		}
	}
}

func TestLabBreakAndHealTakeEachOtherBack(t *testing.T) {
	l := labtest.New(t, labtest.Reference())
	try := func(code int, fragment string, args ...string) {
		t.Helper()
		got, stdout, stderr := deployed(t, l, append([]string{"lab"}, args...)...)
		if strings.Contains(stderr, "exit status") {
			t.Errorf("lab %q: %s", args, stderr)
		}
		if got != code || !strings.Contains(stdout+stderr, fragment) || failureLines(stderr) > 1 {
			t.Errorf("lab %q: exit %d, want %d with %q:\n%s%s", args, got, code, fragment, stdout, stderr)
		}
	}
	try(2, "no breakage given", "break")
	try(2, `there is no breakage "nothing"`, "break", "releases-0700", "nothing")
	try(2, "--list goes with no breakage", "break", "--list", "releases-0700")
	try(3, "lab up --name never-made", "break", "--name", "never-made", "releases-0700")
	try(3, "lab up --name never-made", "heal", "--name", "never-made")
	try(1, "it is not provisioned, or no release is live", "break", "releases-0700")
	try(0, "nothing to heal", "heal")

	for _, args := range [][]string{{"provision", "lab"}, {"slots", "assign", "lab", "u1"}, {"slots", "assign", "lab", "u2"}, {"deploy", "lab"}} {
		if code, stdout, stderr := deployed(t, l, args...); code != 0 {
			t.Fatalf("%q: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
	before := l.Snapshot(t, "/srv", "/etc", "/usr/local")
	try(0, "releases-0700", "break", "releases-0700", "config-missing")
	try(1, "it is broken so already", "break", "config-missing")
	// The configuration is gone, so this one stops half-way.
	try(1, "lab heal", "break", "allowed-cwd")
	if len(before.Diff(l.Snapshot(t, "/srv", "/etc", "/usr/local"))) == 0 {
		t.Error("nothing is broken")
	}
	try(0, "is healed: releases-0700", "heal")
	if diff := before.Diff(l.Snapshot(t, "/srv", "/etc", "/usr/local")); len(diff) > 0 {
		t.Errorf("still broken:\n%s", strings.Join(diff, "\n"))
	}
	try(0, "nothing to heal", "heal")
}
