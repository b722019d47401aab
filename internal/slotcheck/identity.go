package slotcheck

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"agentworks-deploy/internal/report"
)

// nothingProven is the FAIL of a check whose command did not start.
func (a *audit) nothingProven(o outcome, err error, s subject) []report.Row {
	if err != nil {
		return a.unanswered("", err)
	}
	r := a.explain(o, a.probeDir(s), s)
	r.Detail = "nothing was proven: " + r.Detail
	return refused("", r)
}

// checkIdentity compares what the command says of itself with the account, its
// groups with what the kernel says from outside, and the account with what a slot
// has: in the command's own user namespace foreign groups read as nogroup, so it
// could not tell.
func checkIdentity(ctx context.Context, a *audit, s subject) []report.Row {
	h, o, err := a.hold(ctx, s, nil, "id -u; id -g; umask")
	if h == nil {
		return a.nothingProven(o, err, s)
	}
	defer h.release()
	want := []string{fmt.Sprint(s.Account.UID), fmt.Sprint(s.Account.GID), "0007"}
	if !slices.Equal(h.Lines, want) {
		return fail(fmt.Sprintf("the command is uid, gid, umask %s; the slot's are %s", strings.Join(h.Lines, " "), strings.Join(want, " ")), a.provisionFix())
	}
	st, err := a.status(h.PID)
	if err != nil {
		return unknown(fmt.Sprintf("the running command cannot be looked at: %v", cause(err)))
	}
	uids := strings.Fields(st["Uid"])
	if slices.ContainsFunc(uids, func(u string) bool { return u != want[0] }) || len(uids) != 4 {
		return fail(fmt.Sprintf("the kernel runs the command as uids %s, not %s", st["Uid"], want[0]), a.provisionFix())
	}
	has, own := map[string]bool{}, map[string]bool{}
	for _, g := range append(strings.Fields(st["Gid"]), strings.Fields(st["Groups"])...) {
		has[g] = true
	}
	for _, g := range s.Groups {
		own[strconv.FormatUint(uint64(g), 10)] = true
	}
	if !maps.Equal(has, own) {
		return fail(fmt.Sprintf("the command runs with groups %s; the account's are %s",
			strings.Join(slices.Sorted(maps.Keys(has)), " "), strings.Join(slices.Sorted(maps.Keys(own)), " ")), a.provisionFix())
	}
	if rows := a.accountFaults(s.Account); rows != nil {
		return rows
	}
	return pass(fmt.Sprintf("uid %s, umask 0007, exactly the %d group(s) of a slot", want[0], len(own)))
}

// checkCapabilities reads all five sets of a running command from outside.
func checkCapabilities(ctx context.Context, a *audit, s subject) []report.Row {
	h, o, err := a.hold(ctx, s, nil, ":")
	if h == nil {
		return a.nothingProven(o, err, s)
	}
	defer h.release()
	st, err := a.status(h.PID)
	if err != nil {
		return unknown(fmt.Sprintf("the running command cannot be looked at: %v", cause(err)))
	}
	var held []string
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		value, ok := st[set]
		if !ok {
			return unknown("the kernel does not tell " + set)
		}
		if strings.Trim(value, "0") != "" {
			held = append(held, set+" "+value)
		}
	}
	if held != nil {
		return []report.Row{{State: report.Fail, Detail: "the command holds capabilities: " + strings.Join(held, ", "),
			Cause: "the launcher " + a.launcher + " leaves capabilities", Fix: a.deployFix()}}
	}
	return pass("all five sets are empty")
}

// checkProcessEnvironment tries to read environments of processes by name: of a
// second command of the same slot, of the services, and of pid 1. A search over
// /proc would find nothing in the sandbox and prove nothing (case S32).
func checkProcessEnvironment(ctx context.Context, a *audit, s subject) []report.Row {
	canary := rand.Text()
	h, o, err := a.hold(ctx, s, []string{"SLOTCHECK_CANARY=" + canary}, `echo "$SLOTCHECK_CANARY"`)
	if h == nil {
		return a.nothingProven(o, err, s)
	}
	defer h.release()
	if !slices.Equal(h.Lines, []string{canary}) {
		return unknown("the second command did not get its own variable")
	}
	pids := []int{h.PID, 1}
	running, _, err := a.services(ctx)
	if err != nil {
		return unknown(err.Error())
	}
	for _, r := range running {
		pids = append(pids, r.PID)
	}
	var files []string
	for _, pid := range pids {
		files = append(files, filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	}
	rows := a.tryDenied(ctx, s, `for f; do cat -- "$f" >/dev/null && exit 0; done; exit 1`,
		aim{show: fmt.Sprintf("the environment of %d named process(es)", len(files))}, files...)
	return rows
}

// scrubbed are names under which a platform keeps secrets: each of the list in
// docs/formats.md, one for each prefix, and one that no list names.
func scrubbed() []string {
	return []string{
		"AUTH_SECRET", "ACCESS_PASSWORD", "GOG_KEYRING_PASSWORD", "ADMIN_USERS", "AUTH_ALLOWED_EMAILS",
		"CAPLAYER_SERVICE_TOKEN", "CAPLAYER_SERVICE_TOKEN_FILE", "SSH_AUTH_SOCK",
		"SUPABASE_SLOTCHECK", "GLOBAL_SECRET_SLOTCHECK", "VAULT_SLOTCHECK", "SLOTCHECK_UNLISTED",
	}
}

// checkEnvScrubbed plants canaries in the environment that the shell tool starts
// from and looks for them in the command's.
func checkEnvScrubbed(ctx context.Context, a *audit, s subject) []report.Row {
	canary := rand.Text()
	chain := a.chain
	chain.Environ = []string{"TZ=Etc/" + canary}
	for _, name := range scrubbed() {
		chain.Environ = append(chain.Environ, name+"="+canary)
	}
	mark := rand.Text()
	o, err := a.confinedBy(ctx, chain, s, markScript(mark, "env"))
	if err != nil {
		return a.unanswered("", err)
	}
	status, started := marked(o.Stdout, mark)
	if !started {
		return a.nothingProven(o, nil, s)
	}
	if status != "0" {
		return unknown("the probe's own program did not run")
	}
	tz := false
	var leaked []string
	for line := range strings.Lines(o.Stdout) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case name == "TZ" && value == "Etc/"+canary:
			tz = true
		case strings.Contains(value, canary):
			leaked = append(leaked, name)
		}
	}
	switch {
	case leaked != nil:
		return fail("the command sees "+strings.Join(leaked, ", "), a.deployFix())
	case !tz:
		return fail("the command does not get TZ, which is on the allow-list", a.deployFix())
	}
	return pass(fmt.Sprintf("%d secret names gone, TZ there", len(scrubbed())))
}
