package slotcheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/slots"
)

// sudoers is the folder whose files make the rule.
const sudoers = "/etc/sudoers.d"

// checkSudoRule asks sudo itself what the service account may run: the one
// command as every slot, and nothing else (case U-01).
func checkSudoRule(ctx context.Context, a *audit, _ subject) []report.Row {
	var rows []report.Row
	if r, found := a.sudoFault(""); found {
		return refused("", r)
	}
	for _, s := range a.slots {
		if may, text, err := a.maySudo(ctx, s.Slot, a.slotctl, "exec"); err != nil {
			return unknown(err.Error())
		} else if !may {
			detail := "sudo does not offer slotctl exec"
			if text != "" { // it says nothing where it offers something else
				detail += ": " + a.hide.words(text)
			}
			rows = append(rows, report.Row{State: report.Fail, Slot: s.Slot, Detail: detail,
				Cause: "the sudo rule does not offer slotctl exec", Fix: a.provisionFix()})
		}
	}
	if len(a.slots) > 0 {
		rows = append(rows, a.beyondRule(ctx, a.slots[0].Slot)...)
	}
	rows = append(rows, a.listedRules(ctx)...)
	if len(rows) == 0 {
		rows = pass(fmt.Sprintf("%s exec as each of %d slot(s), and nothing else", a.slotctl, len(a.slots)))
	}
	return append(rows, ignoredSudoers()...)
}

// maySudo asks whether the service account may run argv as account.
func (a *audit) maySudo(ctx context.Context, account string, argv ...string) (may bool, text string, err error) {
	out, errs, err := tool(ctx, nil, append([]string{"/usr/bin/sudo", "-n", "-l", "-u", account}, argv...)...)
	if err == nil {
		return strings.TrimSpace(out) != "", errs, nil
	}
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return false, errs, nil
	}
	return false, "", fmt.Errorf("ask sudo: %w", err)
}

// beyondRule tries what the rule must not offer.
func (a *audit) beyondRule(ctx context.Context, slot string) []report.Row {
	var rows []report.Row
	for _, try := range []struct {
		what, account string
		argv          []string
	}{
		{"another program as a slot", slot, []string{"/usr/bin/id"}},
		{"slotctl without its word", slot, []string{a.slotctl}},
		{"another word of slotctl", slot, []string{a.slotctl, "status"}},
		{"slotctl as root", "root", []string{a.slotctl, "exec"}},
		{"slotctl as an account that is no slot", "nobody", []string{a.slotctl, "exec"}},
	} {
		may, _, err := a.maySudo(ctx, try.account, try.argv...)
		if err != nil {
			return append(rows, unknown(err.Error())...)
		}
		if may {
			rows = append(rows, fail("sudo offers "+try.what, a.otherRule())...)
		}
	}
	return rows
}

func (a *audit) otherRule() *report.Fix {
	return noFix(report.OnHost, fmt.Sprintf("a rule besides ours gives %s more: find it in /etc/sudoers and %s, and take it out with visudo", a.layout.Product, sudoers))
}

// listedRules reads the whole list, so that a rule nobody thought to try for is
// seen too.
func (a *audit) listedRules(ctx context.Context) []report.Row {
	out, errs, err := tool(ctx, nil, "/usr/bin/sudo", "-n", "-l")
	if err != nil {
		if _, exited := errors.AsType[*exec.ExitError](err); exited {
			return nil // no rule at all: each slot's own row says so
		}
		return unknown(fmt.Sprintf("ask sudo for its list: %v %s", err, errs))
	}
	allowed := []string{a.slotctl + " exec"}
	if a.ask.Host.Slots.RequestFile {
		allowed = append(allowed, a.slotctl+" exec --request-file *")
	}
	rules, err := parseSudoList(out)
	if err != nil {
		return unknown(err.Error())
	}
	more, strangers := 0, 0
	for _, r := range rules {
		for _, account := range r.RunAs {
			if !slots.ValidSlot(a.layout.Prefix, account) {
				strangers++
			}
		}
		for _, c := range r.Commands {
			if !slices.Contains(allowed, c) {
				more++
			}
		}
	}
	if more+strangers > 0 {
		return fail(fmt.Sprintf("sudo -l lists %d command(s) besides slotctl exec and %d account(s) that are no slot", more, strangers), a.otherRule())
	}
	return nil
}

// sudoRule is one entry of sudo -l: the accounts and the commands.
type sudoRule struct {
	RunAs, Commands []string
}

var (
	sudoEntry = regexp.MustCompile(`^\(([^)]*)\) ?(.*)$`)
	sudoTag   = regexp.MustCompile(`^[A-Z_]+: ?`)
)

// parseSudoList reads the answer of sudo -l. Sudo wraps long lines, so a line
// that does not begin an entry continues the one before.
func parseSudoList(out string) ([]sudoRule, error) {
	_, list, ok := strings.Cut(out, " may run the following commands")
	if !ok {
		return nil, errors.New("the answer of sudo -l has no list")
	}
	_, list, _ = strings.Cut(list, "\n")
	var entries []string
	for line := range strings.Lines(list) {
		text := strings.TrimSpace(line)
		switch {
		case text == "":
		case strings.HasPrefix(text, "(") && strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "     "), len(entries) == 0:
			entries = append(entries, text)
		default:
			entries[len(entries)-1] += " " + text
		}
	}
	var rules []sudoRule
	for _, e := range entries {
		m := sudoEntry.FindStringSubmatch(e)
		if m == nil {
			return nil, errors.New("the answer of sudo -l has a line that is no rule")
		}
		r := sudoRule{RunAs: strings.FieldsFunc(m[1], func(c rune) bool { return c == ',' || c == ' ' })}
		for _, c := range splitCommands(m[2]) {
			for sudoTag.MatchString(c) {
				c = sudoTag.ReplaceAllString(c, "")
			}
			r.Commands = append(r.Commands, c)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// splitCommands parts commands at commas; sudo writes a comma within one as \,.
func splitCommands(s string) []string {
	var out []string
	start := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ',':
			out = append(out, strings.TrimSpace(s[start:i]))
			start = i + 1
		}
	}
	return append(out, strings.TrimSpace(s[start:]))
}

// ignoredSudoers finds files that sudo does not read for a dot or a tilde in
// their name (case B13).
func ignoredSudoers() []report.Row {
	entries, err := os.ReadDir(sudoers)
	if err != nil {
		return skip(fmt.Sprintf("files that sudo ignores: %s cannot be listed by the service", sudoers))
	}
	var ignored []string
	for _, e := range entries {
		if name := e.Name(); strings.Contains(name, ".") || strings.HasSuffix(name, "~") {
			ignored = append(ignored, name)
		}
	}
	if len(ignored) == 0 {
		return nil
	}
	return warn(fmt.Sprintf("sudo ignores %s in %s: a name with a dot or a ~ at its end is not read", strings.Join(ignored, ", "), sudoers))
}
