package slotcheck_test

import (
	"slices"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
)

// TestEachRowOfLevelFullHasItsBreakage: the rows that neither a breakage of the
// lab nor a launcher that enforces nothing turns. Each is broken alone, fails
// alone, and is put right.
func TestEachRowOfLevelFullHasItsBreakage(t *testing.T) {
	o := reference(t)
	redeploy := func() { o.must(t, "deploy", "lab"); o.sh(t, dropFake) }
	real := `exec "${0%/*}/real-runner" "$@"`
	for _, tt := range []struct {
		name, script string
		mend         func()
		rows         []string
		detail       string
	}{
		{"a launcher that changes the umask", fake("umask 022\n" + real), redeploy,
			[]string{"identity [slot01]", "identity [slot02]", "identity [slot50]"}, "0022"},
		{"a launcher that takes from the environment", fake("unset TZ\n" + real), redeploy,
			[]string{"env-scrubbed [slot01]", "env-scrubbed [slot02]", "env-scrubbed [slot50]"}, "does not get TZ"},
		{"a rule that gives the service more", `printf 'vs ALL=(ALL) NOPASSWD: /usr/bin/id\n' >/etc/sudoers.d/extra; chmod 0440 /etc/sudoers.d/extra`,
			func() { o.sh(t, `rm /etc/sudoers.d/extra`) }, []string{"sudo-rule", "sudo-rule"}, "sudo"},
		{"a tree open to others", `chmod o+rx /srv/vs/data/docs/_users/u1`,
			func() { o.sh(t, `chmod o-rx /srv/vs/data/docs/_users/u1`) }, []string{"trees-closed"}, "open to others"},
		{"an ACL entry of another slot on a tree", `setfacl -m u:slot02:rx /srv/vs/data/docs/_users/u1`,
			func() { o.sh(t, `setfacl -b /srv/vs/data/docs/_users/u1`) }, []string{"trees-closed"}, "ACL entry for slot02"},
		{"password hashes that everybody may read", `chmod 0644 /etc/shadow`,
			func() { o.sh(t, `chmod 0640 /etc/shadow`) }, []string{"deny-shadow [slot01]", "deny-shadow [slot02]", "deny-shadow [slot50]"}, "/etc/shadow is open"},
		{"a process of a slot that holds nobody", `runuser -u slot20 -- sleep 1000 </dev/null >/dev/null 2>&1 & sleep 0.1`,
			func() { o.sh(t, `kill $(pgrep -u slot20 -x sleep)`) }, []string{"slot-hygiene [slot20]"}, "process"},
		{"a user without a slot", `sed -i 's/"users": *\[/"users":[{"id":"u3"},/' /srv/vs/data/docs/config/users.json`,
			func() { o.sh(t, `sed -i 's/{"id":"u3"},//' /srv/vs/data/docs/config/users.json`) }, []string{"accounts-without-slot"}, "1 of 3"},
		{"a service that cannot gain privileges", `mkdir -p /srv/vs/home/.config/systemd/user/vs-agent.service.d
printf '[Service]\nNoNewPrivileges=yes\n' >/srv/vs/home/.config/systemd/user/vs-agent.service.d/x.conf
systemctl --user -M vs@ daemon-reload; systemctl --user -M vs@ restart vs-agent`,
			func() {
				o.sh(t, `rm -r /srv/vs/home/.config/systemd/user/vs-agent.service.d; systemctl --user -M vs@ daemon-reload; systemctl --user -M vs@ restart vs-agent`)
			}, []string{"sandbox"}, "no_new_privs"},
		{"a service with users of its own", `mkdir -p /srv/vs/home/.config/systemd/user/vs-agent.service.d
printf '[Service]\nPrivateUsers=yes\n' >/srv/vs/home/.config/systemd/user/vs-agent.service.d/x.conf
systemctl --user -M vs@ daemon-reload; systemctl --user -M vs@ restart vs-agent`,
			func() {
				o.sh(t, `rm -r /srv/vs/home/.config/systemd/user/vs-agent.service.d; systemctl --user -M vs@ daemon-reload; systemctl --user -M vs@ restart vs-agent`)
			}, []string{"sandbox"}, "user namespace"},
		{"documents that nobody can write to", `mount --bind /srv/vs/data /srv/vs/data; mount -o remount,bind,ro /srv/vs/data`,
			func() { o.sh(t, `umount /srv/vs/data`) }, []string{"sandbox"}, "mounted read-only"},
		{"an interpreter below a service", `pid=$(pgrep -u vs -x vs-agent); cg=$(sed -n 's/^0:://p' /proc/$pid/cgroup)
runuser -u vs -- perl -e 'sleep 1000' </dev/null >/dev/null 2>&1 &
sleep 0.1; p=$(pgrep -u vs -x perl); echo $p >/sys/fs/cgroup$cg/cgroup.procs`,
			func() { o.sh(t, `kill $(pgrep -u vs -x perl)`) }, []string{"host-exec"}, "perl (pid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o.sh(t, tt.script)
			defer tt.mend()
			r := o.audit(t, "--level", "full")
			if got := of(r, report.Fail, report.Error); !slices.Equal(got, tt.rows) {
				t.Errorf("failed are %q, want %q:\n%s", got, tt.rows, text(r))
			}
			for _, row := range r.Rows {
				if row.State == report.Fail && (!strings.Contains(row.Detail, tt.detail) || row.Fix == nil || strings.Contains(row.Detail, "sleep 1000")) {
					t.Errorf("%s: %s, fix %+v; want %q in it", name(row), row.Detail, row.Fix, tt.detail)
				}
			}
		})
	}
	if r := o.audit(t, "--level", "full"); r.Exit != 0 {
		t.Errorf("the host is left broken:\n%s", text(r))
	}
}
