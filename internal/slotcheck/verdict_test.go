package slotcheck_test

import (
	"slices"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
)

// The modes that a denial could hide behind: opened, only the launcher is left
// to refuse.
const (
	openModes = `cd /srv/vs
chmod 0755 state state/browser-profile-projects state/browser-profile-projects/*; chmod 0644 state/browser-profile-projects/*/Cookies .env
chmod 0755 data/docs/_users releases slots/run; chmod o+rx data/docs/_users/*; chmod 0777 data/docs`
	closeModes = `cd /srv/vs
chmod 0644 .env; chmod 0700 state state/browser-profile-projects state/browser-profile-projects/*; chmod 0600 state/browser-profile-projects/*/Cookies .env
chmod 0711 data/docs/_users releases slots/run; chmod o-rwx data/docs/_users/*; chmod 0755 data/docs`
	enforcesNothing = `while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
[ $# -gt 1 ] || { echo "SANDBOX_UNAVAILABLE: usage" >&2; exit 125; }
shift
exec "$@"`
)

// wrapSlotctl puts a script in slotctl's place; $real is the real one.
func wrapSlotctl(body string) string {
	return `cd ` + libexec + `; mkdir -p real; [ -e real/slotctl ] || cp slotctl real/; cp slotctl.json real/
cat >slotctl.new <<'END'
#!/bin/sh
real=` + libexec + `/real/slotctl
` + body + `
END
chmod 0755 slotctl.new; mv slotctl.new slotctl`
}

// unwrapSlotctl takes the script away again; provisioning puts slotctl back.
func (o operator) unwrapSlotctl(t *testing.T) {
	t.Helper()
	o.sh(t, `rm -r `+libexec+`/real`)
	o.must(t, "provision", "lab")
}

// confinement are the rows that a launcher which enforces nothing must fail.
// Env-scrubbed and the uid are not the launcher's doing.
func confinement() []string {
	return []string{
		"capabilities", "deny-browser-profile", "deny-browser-profile-list", "deny-other-user", "deny-app-env", "deny-app-state",
		"deny-list-users", "deny-list-releases", "deny-not-granted", "deny-write-outside", "deny-host-tmp", "deny-slot-run-root", "deny-host-sockets",
		"tmux-socket-unreachable", "sandbox",
	}
}

// states gathers the states of each check's rows, over all slots.
func states(r report.Report) map[string][]report.State {
	found := map[string][]report.State{}
	for _, row := range r.Rows {
		if !slices.Contains(found[row.Check], row.State) {
			found[row.Check] = append(found[row.Check], row.State)
		}
	}
	return found
}

// TestS05EachDenialHasALeakThatTurnsIt: behind closed modes a denial would be
// green with any launcher. With the modes open the real launcher still refuses
// everything, one that enforces nothing fails every row, and nothing that a leak
// made is left.
func TestS05EachDenialHasALeakThatTurnsIt(t *testing.T) {
	o := reference(t)
	o.sh(t, openModes)
	defer o.sh(t, closeModes)
	found := states(o.audit(t, "--level", "full"))
	for _, c := range append(confinement(), "deny-process-environment") {
		if !slices.Equal(found[c], []report.State{report.Pass}) {
			t.Errorf("%s is %v with the real launcher and open modes, want PASS", c, found[c])
		}
	}
	o.sh(t, fake(enforcesNothing))
	defer func() { o.sh(t, closeModes); o.must(t, "deploy", "lab"); o.sh(t, dropFake) }() // open modes would fail the deploy
	r := o.audit(t, "--level", "full")
	found = states(r)
	for _, c := range confinement() {
		if !slices.Equal(found[c], []report.State{report.Fail}) {
			t.Errorf("%s is %v with a launcher that enforces nothing, want FAIL", c, found[c])
		}
	}
	if r.Exit != report.ExitState {
		t.Errorf("exit %d, want 1", r.Exit)
	}
	if left := o.sh(t, `ls -A /srv/vs/data/docs /tmp | grep slotcheck || :`); left != "" {
		t.Errorf("left behind: %s", left)
	}
	for _, row := range r.Rows {
		if slices.Contains(confinement(), row.Check) && (row.Fix == nil || strings.Join(row.Fix.Argv, " ") != "agentworks-deploy deploy lab") {
			t.Errorf("%s: fix %+v, want a deploy", name(row), row.Fix)
		}
	}

	// Two commands in user namespaces of their own cannot look at each other
	// whatever the launcher does, so that row needs a slotctl that makes none.
	o.sh(t, wrapSlotctl(`sed 's/"userns":true/"userns":false/' | "$real" "$@"`))
	defer o.unwrapSlotctl(t)
	found = states(o.audit(t, "--level", "full"))
	if c := "deny-process-environment"; !slices.Equal(found[c], []report.State{report.Fail}) {
		t.Errorf("%s is %v without namespaces and confinement, want FAIL", c, found[c])
	}
}

// TestS04ASandboxThatDidNotStartProvesNothing: no row that needs a command may
// be green when none ran, whatever the launcher prints.
func TestS04ASandboxThatDidNotStartProvesNothing(t *testing.T) {
	o := reference(t)
	defer func() { o.must(t, "deploy", "lab"); o.sh(t, dropFake) }()
	for what, body := range map[string]string{
		"exits 125":              `echo "SANDBOX_UNAVAILABLE: no" >&2; exit 125`,
		"says started, exits 1":  `echo started; exit 1`,
		"says nothing, exits 0":  `exit 0`,
		"echoes its words":       `echo "$@"; exit 0`,
		"dies of a signal":       `kill -SEGV $$`,
		"runs another program":   `exec /bin/pwd`,
		"floods standard output": `exec head -c 300000 /dev/zero`,
	} {
		t.Run(what, func(t *testing.T) {
			o.sh(t, dropFake+"\n"+fake(body))
			r := o.audit(t, "--level", "full")
			if r.Exit != report.ExitState && what != "floods standard output" {
				t.Errorf("exit %d, want 1", r.Exit)
			}
			needACommand := append(confinement(), "identity", "env-scrubbed", "pwd-crew-project", "pwd-code-project", "slot-hygiene")
			for _, row := range r.Rows {
				if row.State == report.Pass && slices.Contains(needACommand, row.Check) {
					t.Errorf("PASS %s: %s", name(row), row.Detail)
				}
			}
			found := states(r)
			for _, c := range needACommand {
				if len(found[c]) == 0 {
					t.Errorf("no row for %s", c)
				}
			}
		})
	}
}

// TestB18SudoThatAsksIsARefusal: with a password to give, or a terminal to ask
// on, nothing hangs and the row says what sudo said.
func TestB18SudoThatAsksIsARefusal(t *testing.T) {
	o := reference(t)
	o.sh(t, `sed -i 's/NOPASSWD: //' /etc/sudoers.d/agentworks-slots`)
	defer o.must(t, "provision", "lab")
	r := o.audit(t)
	for _, slot := range []string{"slot01", "slot02", "slot50"} {
		i := slices.IndexFunc(r.Rows, func(row report.Row) bool { return name(row) == "runner-reachable ["+slot+"]" })
		if i < 0 || r.Rows[i].State != report.Fail || !strings.Contains(r.Rows[i].Detail, "a password is required") ||
			strings.Join(r.Rows[i].Fix.Argv, " ") != "agentworks-deploy provision lab" {
			t.Errorf("runner-reachable of %s:\n%s", slot, text(r))
		}
	}
}

// TestS14ReachIsTheSlotsOwn: an ACL opens what the mode closes, and the other
// way round; the fix speaks of what decides.
func TestS14ReachIsTheSlotsOwn(t *testing.T) {
	o := reference(t)
	defer o.sh(t, `setfacl -b /srv/vs/releases; chmod 0711 /srv/vs/releases`)
	reach := func(r report.Report) map[string]report.Row {
		rows := map[string]report.Row{}
		for _, row := range r.Rows {
			if row.Check == "runner-reachable" {
				rows[row.Slot] = row
			}
		}
		return rows
	}
	o.sh(t, `chmod 0700 /srv/vs/releases; setfacl -m u:slot01:--x /srv/vs/releases`)
	r := o.audit(t)
	rows := reach(r)
	if rows["slot01"].State != report.Pass || rows["slot02"].State != report.Fail || !slices.Contains(of(r, report.Warn), "acl-present") {
		t.Errorf("an ACL for slot01 alone:\n%s", text(r))
	}
	// Case B21: chmod after setfacl hides the entry behind the mask.
	o.sh(t, `chmod 0700 /srv/vs/releases`)
	rows = reach(o.audit(t))
	if f := rows["slot01"].Fix; rows["slot01"].State != report.Fail || f == nil || strings.Join(f.Argv, " ") != "setfacl -n -m m::--x /srv/vs/releases" {
		t.Errorf("the mask hides x: %+v", rows["slot01"])
	}
	o.apply(t, *rows["slot01"].Fix)
	o.apply(t, *rows["slot02"].Fix)
	if rows := reach(o.audit(t)); rows["slot01"].State != report.Pass || rows["slot02"].State != report.Pass {
		t.Errorf("after both fixes: %+v", rows)
	}
	// An entry that shuts one slot out of an open folder.
	o.sh(t, `setfacl -m u:slot02:--- /srv/vs/releases`)
	rows = reach(o.audit(t))
	if rows["slot01"].State != report.Pass || rows["slot02"].State != report.Fail {
		t.Errorf("slot02 is shut out: %+v", rows)
	}
	o.apply(t, *rows["slot02"].Fix)
	if r := o.audit(t); r.Exit != 0 {
		t.Errorf("after the fix:\n%s", text(r))
	}
}

// TestS14OldSlotctlNamesNoComponent: its 127 is explained by modes and ACLs.
func TestS14OldSlotctlNamesNoComponent(t *testing.T) {
	o := reference(t)
	defer o.unwrapSlotctl(t)
	defer o.sh(t, `chmod 0711 /srv/vs/releases`)
	o.sh(t, `chmod 0700 /srv/vs/releases; `+wrapSlotctl(`"$real" "$@" 2>/dev/null
code=$?
[ $code != 127 ] || echo "slotctl: fork/exec /srv/vs/launcher: permission denied" >&2
exit $code`))
	r := o.audit(t)
	i := slices.IndexFunc(r.Rows, func(row report.Row) bool { return name(row) == "runner-reachable [slot01]" })
	if row := r.Rows[i]; row.State != report.Fail || !strings.HasPrefix(row.Detail, "/srv/vs/releases is not traversable for slot01 (computed") ||
		strings.Join(row.Fix.Argv, " ") != "chmod 0711 /srv/vs/releases" {
		t.Errorf("%+v", row)
	}
}

func TestS15ListableReleasesWarn(t *testing.T) {
	o := reference(t)
	o.sh(t, `chmod 0755 /srv/vs/releases`)
	defer o.sh(t, `chmod 0711 /srv/vs/releases`)
	if r := o.audit(t); r.Exit != 0 || !slices.Equal(of(r, report.Warn), []string{"releases-listable"}) {
		t.Errorf("exit %d:\n%s", r.Exit, text(r))
	}
	if r := o.audit(t, "--strict"); r.Exit != 1 {
		t.Errorf("--strict: exit %d", r.Exit)
	}
}

func TestS01TheReferenceLayout(t *testing.T) {
	o := reference(t)
	stdout, stderr, code := o.run(t, "slotcheck", "lab")
	if !strings.Contains(stdout, "\nslot self-test: 21 passed, 0 failed, 0 skipped\n") || code != 0 || strings.Contains(stderr, "slot") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if stdout, stderr, code := o.run(t, "slotcheck", "lab", "--quiet"); stdout != "" || stderr != "" || code != 0 {
		t.Errorf("--quiet: exit %d %q %q", code, stdout, stderr)
	}
}

// TestS02ReleasesClosed is the first example that everybody tries by hand.
func TestS02ReleasesClosed(t *testing.T) {
	o := reference(t)
	o.sh(t, `chmod 0700 /srv/vs/releases`)
	defer o.sh(t, `chmod 0711 /srv/vs/releases`)
	stdout, _, code := o.run(t, "slotcheck", "lab")
	if code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	for _, slot := range []string{"slot01", "slot02", "slot50"} {
		line := "\nFAIL runner-reachable [" + slot + "]: /srv/vs/releases is not traversable for " + slot + " -- fix: chmod 0711 /srv/vs/releases\n"
		if !strings.Contains(stdout, line) {
			t.Errorf("no line %q in\n%s", line, stdout)
		}
	}
	if !strings.Contains(stdout, "\nslot self-test: 6 passed, 15 failed, 0 skipped\n") || !strings.Contains(stdout, "\nCAUSE /srv/vs/releases is not traversable: ") {
		t.Errorf("%s", stdout)
	}
}
