package slotcheck

import (
	"fmt"
	"path"
	"strings"

	"agentworks-deploy/internal/report"
)

// The fragments by which the chain's programs are told apart on standard error;
// see the tables of exit codes in docs/formats.md.
const (
	skippedLine   = "SANDBOX_GRANT_SKIPPED: "
	launcherLine  = "SANDBOX_UNAVAILABLE: "
	slotctlLine   = "slotctl: "
	sudoLine      = "sudo: "
	cannotStart   = "slotctl: cannot start "
	exitSudo      = 1
	exitMalformed = 125
	exitNoStart   = 127
)

// outcome is how one command through the chain ended.
type outcome struct {
	Exit           int
	Stdout, Stderr string
}

// stage is the program of the chain that spoke last.
type stage int

const (
	stageCommand stage = iota // the command itself, or nobody said anything
	stageSudo
	stageSlotctl
	stageLauncher
)

// stage tells who ended the chain. An exit code alone does not: the command may
// end with any of them.
func (o outcome) stage() stage {
	line := trueError(o.Stderr)
	switch {
	case o.Exit == exitSudo && (strings.HasPrefix(line, sudoLine) || strings.HasPrefix(line, "Sorry, user ")):
		return stageSudo
	case o.Exit >= exitMalformed && o.Exit <= exitNoStart && strings.HasPrefix(line, slotctlLine):
		return stageSlotctl
	case o.Exit >= exitMalformed && o.Exit <= exitNoStart && strings.HasPrefix(line, launcherLine):
		return stageLauncher
	}
	return stageCommand
}

// trueError is the line of stderr that says what went wrong: the first one of
// the chain's own programs, else the first one at all. A skipped grant is a
// notice and never hides it (case S-13).
func trueError(stderr string) string {
	first := ""
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, skippedLine) {
			continue
		}
		for _, own := range []string{launcherLine, slotctlLine, sudoLine, "Sorry, user "} {
			if strings.HasPrefix(line, own) {
				return line
			}
		}
		if first == "" {
			first = line
		}
	}
	return first
}

// skipped tells whether the launcher said that it left the grant out.
func skipped(stderr, grant string) bool {
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, skippedLine+grant+" ") {
			return true
		}
	}
	return false
}

// refusal is what a FAIL row says about a chain that did not get through.
type refusal struct {
	Detail, Cause string
	Fix           *report.Fix
}

// explain says why a command in dir ended with o and not as was asked, and the
// way out. The detail is another program's text, so users are hidden in it.
func (a *audit) explain(o outcome, dir string, s subject) refusal {
	line := trueError(o.Stderr)
	switch o.stage() {
	case stageSudo:
		return a.sudoRefusal(line)
	case stageSlotctl:
		if o.Exit == exitNoStart {
			return a.unreachable(line, s)
		}
		return a.slotctlRefusal(line, dir, s)
	case stageLauncher:
		return a.launcherRefusal(line, dir, s)
	}
	if line == "" {
		line = "it said nothing"
	}
	return refusal{Detail: a.hide.words(line), Cause: "the launcher " + a.launcher + " does not run commands", Fix: a.deployFix()}
}

// sudoRefusal: everything sudo says no to, provisioning puts right, but for what
// is wrong with sudo itself, and those few that are the caller's or the account
// service's (case B18).
func (a *audit) sudoRefusal(line string) refusal {
	if r, found := a.sudoFault(line); found {
		return r
	}
	fix := a.provisionFix()
	switch {
	case strings.Contains(line, "no new privileges"):
		fix = noFix(report.OnHost, "the caller runs with no_new_privs, under which sudo cannot work: take NoNewPrivileges= out of its unit")
	case strings.Contains(line, "account validation failure"), strings.Contains(line, "account has expired"):
		fix = noFix(report.OnHost, "the account management of sudo refuses the service account: see chage -l and the log of sudo")
	}
	return refusal{Detail: a.hide.words(line), Cause: "sudo refuses", Fix: fix}
}

func (a *audit) slotctlRefusal(line, dir string, s subject) refusal {
	r := refusal{Detail: a.hide.words(line), Cause: a.hide.words(strings.ReplaceAll(line, s.Slot, "the slot")), Fix: a.provisionFix()}
	switch {
	case a.configFix != nil:
		// The config row said what is wrong with slotctl.json; slotctl refuses
		// everything for it.
		r.Fix = a.configFix
	case strings.Contains(line, "permission denied"):
		// The folder of the probe is closed to the slot.
		if at, fix := a.closedTo(dir, s); fix != nil {
			r = refusal{Detail: a.shown(at) + " is not traversable for " + s.Slot, Cause: a.shown(at) + " is not traversable", Fix: fix}
		}
	case strings.Contains(line, "groups of the caller came along"):
		r.Fix = noFix(report.OnHost, "sudo hands the caller's groups over: take preserve_groups out of /etc/sudoers and "+sudoers+" with visudo")
		if faults := a.accountFaults(s.Account); faults != nil {
			r.Fix = faults[0].Fix // it has the group itself
		}
	case strings.Contains(line, "(max_processes)"):
		r.Fix = noFix(report.OnHost, "end processes of "+s.Slot+", or raise max_processes in "+a.configFile)
	case strings.Contains(line, "(max_commands)"):
		r.Fix = noFix(report.Operator, "end commands of "+s.Slot+", or raise slots.max_commands in the host file and provision")
	}
	return r
}

// launcherRefusal: the folder is closed to the slot, or the host lacks
// something, or the launcher is faulty.
func (a *audit) launcherRefusal(line, dir string, s subject) refusal {
	if strings.Contains(line, "permission denied") {
		if at, fix := a.closedTo(dir, s); fix != nil {
			return refusal{Detail: a.shown(at) + " is not traversable for " + s.Slot, Cause: a.shown(at) + " is not traversable", Fix: fix}
		}
	}
	if fix := a.kernelFix(line); fix != nil {
		return refusal{Detail: a.hide.words(line), Cause: "the host does not give what a sandbox needs", Fix: fix}
	}
	return refusal{Detail: a.hide.words(line), Cause: "the launcher " + a.launcher + " refuses", Fix: a.deployFix()}
}

// shown is a path as rows show it: below docs, and without the user.
func (a *audit) shown(p string) string {
	for _, root := range []string{a.docs, resolve(a.docs)} {
		if within(p, root) {
			rel := a.hide.words(strings.TrimPrefix(strings.TrimPrefix(p, root), "/"))
			return path.Join("<docs>", strings.Replace(rel, "_users/"+hidden, hidden, 1))
		}
	}
	return p
}

// The words with which slotctl names the component that refuses.
const (
	notTraversable = " is not traversable for "
	notExecutable  = " is not executable"
	noexecMount    = " is on a noexec mount"
	notThere       = " does not exist"
)

// unreachable reads slotctl's reason for not starting the launcher. An old
// slotctl names no component: then modes and ACLs are read here, and the row
// says so.
func (a *audit) unreachable(line string, s subject) refusal {
	reason, ok := strings.CutPrefix(line, cannotStart+a.launcher+": ")
	if ok {
		for _, words := range []string{notTraversable, notExecutable, noexecMount, notThere} {
			component, _, found := strings.Cut(reason, words)
			if found && within(a.launcher, component) {
				return a.component(component, words, s)
			}
		}
	}
	if r, found := a.computed(s); found {
		return r
	}
	return refusal{Detail: a.hide.words(line), Cause: "the launcher " + a.launcher + " cannot be started", Fix: a.deployFix()}
}

// component is the refusal of one step on the way to the launcher.
func (a *audit) component(p, words string, s subject) refusal {
	r := refusal{Detail: p + words, Cause: p + strings.TrimSuffix(words, " for ")}
	switch words {
	case notTraversable:
		r.Detail += s.Slot
		r.Fix = a.openFolder(p, s)
	case notExecutable:
		r.Fix = hostFix("chmod", "0755", p)
	case noexecMount:
		r.Fix = noFix(report.OnHost, "mount the file system that holds "+p+" without noexec")
	default:
		r.Fix = a.deployFix()
	}
	return r
}

// openFolder lets the slot through p and gives nothing else, but for a folder that
// has one right mode; where an ACL entry decides, the mode bits would not help
// (cases S-14, B21).
func (a *audit) openFolder(p string, s subject) *report.Fix {
	words := []string{"chmod", "o+x", p}
	if mode, exact := a.rightMode(p); exact {
		words[1] = fmt.Sprintf("%04o", mode)
	}
	if acc, err := readAccess(p); err == nil {
		d := acc.decide(s.Account.UID, s.Groups, permX)
		if !d.Granted && d.Class != classOther {
			words = acc.opener(d, permX, p)
		}
	}
	return hostFix(words...)
}

// computed walks to the launcher by modes and ACLs and names the first step
// that refuses the slot.
func (a *audit) computed(s subject) (refusal, bool) {
	const how = " (computed from modes and ACLs; this slotctl names no component)"
	for _, p := range way(a.launcher) {
		acc, err := readAccess(p)
		if err != nil {
			return refusal{}, false
		}
		if acc.decide(s.Account.UID, s.Groups, permX).Granted {
			continue
		}
		words := notTraversable
		if p == a.launcher {
			words = notExecutable
		}
		r := a.component(p, words, s)
		r.Detail += how
		return r, true
	}
	return refusal{}, false
}
