package slotcheck_test

import (
	"slices"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
)

// TestAUserManagerOfASlotCannotBeReached: the socket of a slot's user manager is
// the way out of every sandbox. It is closed, the audit proves that, and warns.
func TestAUserManagerOfASlotCannotBeReached(t *testing.T) {
	o := reference(t)
	// The control: from outside the manager runs what it is asked to.
	o.sh(t, `loginctl enable-linger slot02; uid=$(id -u slot02)
for i in $(seq 100); do [ ! -S /run/user/$uid/systemd/private ] || break; sleep 0.1; done
runuser -u slot02 -- env XDG_RUNTIME_DIR=/run/user/$uid systemd-run --user --wait --pipe --quiet true`)
	defer o.sh(t, `loginctl disable-linger slot02`)
	r := o.audit(t, "--level", "full")
	if r.Exit != 0 {
		t.Errorf("exit %d:\n%s", r.Exit, text(r))
	}
	if got := of(r, report.Warn); !slices.Equal(got, []string{"slot-managers [slot02]"}) {
		t.Errorf("warned of %q", got)
	}
	for _, row := range r.Rows {
		switch {
		case row.Check == "deny-host-sockets" && (row.State != report.Pass || !strings.Contains(row.Detail, "accepts from outside")):
			t.Errorf("%s: %s", name(row), row.Detail)
		case row.Check == "slot-managers":
			o.apply(t, *row.Fix)
		}
	}
	o.sh(t, `uid=$(id -u slot02); for i in $(seq 100); do [ -e /run/user/$uid ] || exit 0; sleep 0.1; done; exit 1`)
	if r := o.audit(t, "--level", "full"); len(of(r, report.Warn, report.Fail)) != 0 {
		t.Errorf("after the fix:\n%s", text(r))
	}
}
