package cli

import (
	"strings"
	"testing"

	"agentworks-deploy/internal/lab/labtest"
)

// A slot for an id that users.json does not have is given, and told.
func TestASlotForNobodysAccountIsAWarning(t *testing.T) {
	l := labtest.New(t, labtest.Reference())
	assign := func(user string, flags ...string) string {
		t.Helper()
		code, stdout, stderr := deployed(t, l, append([]string{"slots", "assign", "lab", user}, flags...)...)
		if code != 0 {
			t.Fatalf("%s: exit %d\n%s%s", user, code, stdout, stderr)
		}
		if warned := strings.Contains(stdout, "WARN user-account"); warned != strings.Contains(stderr, "fixes are run where you sit") {
			t.Errorf("%s: the place of the fix:\n%s%s", user, stdout, stderr)
		}
		return stdout
	}
	if code, stdout, stderr := deployed(t, l, "provision", "lab"); code != 0 {
		t.Fatalf("provision: exit %d\n%s%s", code, stdout, stderr)
	}
	const warning = "WARN user-account u3x is no enabled account of /srv/vs/data/docs/config/users.json: is the id right? -- fix: agentworks-deploy slots release lab u3x\n"
	for _, flags := range [][]string{{"--plan"}, nil, nil} {
		if out := assign("u3x", flags...); !strings.Contains(out, warning) {
			t.Errorf("%v: no warning in\n%s", flags, out)
		}
	}
	if out := assign("u1"); strings.Contains(out, "WARN") {
		t.Errorf("u1:\n%s", out)
	}
	// What cannot be read says nothing, and root follows no link of the service's.
	for _, spoil := range []string{"echo none >", "ln -sf /etc/hostname ", "rm "} {
		l.MustExec(t, "sh", "-c", spoil+"/srv/vs/data/docs/config/users.json")
		if out := assign("u4x"); strings.Contains(out, "WARN") {
			t.Errorf("%s:\n%s", spoil, out)
		}
	}
}
