package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// sudoKind is what the installed sudo can read. It is asked, not guessed from a
// version number.
type sudoKind struct {
	requiretty bool // it knows the setting, so the rule turns it off
	matchByGID bool // match_group_by_gid: no name lookup for each group of the caller
}

// sudoRuleText is the whole file of one product. It offers one program with one
// word, and no wildcard but the one of the old request-file form (case B14).
func sudoRuleText(l hosts.Layout, s hosts.Slots, kind sudoKind) []byte {
	var b bytes.Buffer
	defaults := func(what string) { fmt.Fprintf(&b, "Defaults:%s %s\n", l.Product, what) }
	if kind.requiretty {
		defaults("!requiretty")
	}
	defaults("env_reset")
	defaults(`secure_path="/usr/bin:/bin"`)
	if kind.matchByGID {
		defaults("match_group_by_gid")
	}
	if s.Sudo == "direct" { // only all three together let sudo run slotctl in its own place
		defaults("!use_pty, !pam_session, !pam_setcred")
	}
	names := make([]string, l.Count)
	for i := range names {
		names[i] = l.Slot(i + 1)
	}
	fmt.Fprintf(&b, "Runas_Alias %s = %s\n", l.RunasAlias(), strings.Join(names, ", "))
	fmt.Fprintf(&b, "%s ALL=(%s) NOPASSWD: %s exec", l.Product, l.RunasAlias(), l.Slotctl())
	if s.RequestFile {
		fmt.Fprintf(&b, ", %s exec --request-file *", l.Slotctl())
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// askSudo finds out what the installed sudo reads, and refuses a host file that
// asks it for something it does not.
func (r *run) askSudo(ctx context.Context) error {
	if _, ok := r.sys.find("visudo"); !ok {
		return report.Coded(report.ExitState, "the host has no visudo, so no sudo rule can be checked; nothing was changed: install sudo")
	}
	plain := r.Host.Slots
	plain.RequestFile, plain.Sudo = false, ""
	var said error
	for _, kind := range []sudoKind{{requiretty: true, matchByGID: true}, {requiretty: true}, {matchByGID: true}, {}} {
		if said = r.visudo(ctx, sudoRuleText(r.l, plain, kind)); said == nil {
			r.sudo = kind
			break
		}
	}
	if said != nil {
		return report.Coded(report.ExitState, "the installed sudo reads no form of the rule; nothing was changed: %w", said)
	}
	if err := r.visudo(ctx, sudoRuleText(r.l, r.Host.Slots, r.sudo)); err != nil {
		return report.Coded(report.ExitState, "the installed sudo does not read what slots.sudo or slots.request_file of the host file ask for (sudo-rs takes no wildcard in arguments); nothing was changed: %w", err)
	}
	return nil
}

// visudo has the text checked from memory, so that a plan writes nothing.
func (r *run) visudo(ctx context.Context, text []byte) error {
	fd, err := unix.MemfdCreate("sudoers", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "sudoers")
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		return fmt.Errorf("write a file in memory: %w", err)
	}
	_, err = r.sys.tool(ctx, nil, "visudo", "-c", "-f", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd))
	return err
}

// sudoRule installs the rule. The whole set is checked every time: a run that
// was killed between putting the file in place and checking it left that to us.
func (r *run) sudoRule(ctx context.Context) (findings, error) {
	rule := rootFile(r.l.Sudoers(), 0o440, sudoRuleText(r.l, r.Host.Slots, r.sudo))
	f, err := r.files(nil, []file{rule})
	if err != nil {
		return f, err
	}
	if len(f.list) == 0 {
		return f, r.wholeSet(ctx)
	}
	f.apply = func(ctx context.Context) error { return r.installRule(ctx, rule) }
	return f, nil
}

// wholeSet names the file to mend where visudo does: it may be anybody's.
func (r *run) wholeSet(ctx context.Context) error {
	said, err := r.sys.tool(ctx, nil, "visudo", "-c")
	if err == nil {
		return nil
	}
	next := "visudo -c, and mend the file that it names"
	if file := regexp.MustCompile(`(?m)(/[^\s:]+):\d+`).FindStringSubmatch(said); file != nil {
		next = "visudo -f " + report.Quote(file[1])
	} else if file := regexp.MustCompile(`(?m)^(/[^\s:]+): (?:bad permissions|wrong owner)`).FindStringSubmatch(said); file != nil {
		next = "chown root:root " + report.Quote(file[1]) + "; chmod 0440 " + report.Quote(file[1])
	}
	return report.Coded(report.ExitState, "the sudo rules of this host are not valid as a whole: %w; next, on the host: %s; then agentworks-deploy provision %s", err, next, r.Host.Name)
}

// installRule puts the checked rule in place, checks the whole set, and brings
// the old file back where that fails: a broken set is a dead sudo for everybody
// (case B17). The rule's name and that of its temporary file are safe: sudo
// reads no file with a dot in its name.
func (r *run) installRule(ctx context.Context, rule file) error {
	dir, name, err := safefs.OpenParent(r.sys.at(rule.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	old, err := dir.ReadFile(name, configLimit)
	missing := errors.Is(err, unix.ENOENT)
	if err != nil && !missing {
		return err
	}
	if err := rule.put(r.sys); err != nil {
		return err
	}
	invalid := r.wholeSet(ctx)
	if invalid == nil {
		return nil
	}
	back := errors.New("the old file is back")
	if missing {
		err = errors.Join(dir.Remove(name), dir.Sync())
		back = errors.New("the new file is removed again")
	} else {
		err = rootFile(rule.path, 0o440, old).put(r.sys)
	}
	if err != nil {
		back = fmt.Errorf("and the old file could not be brought back: %w", err)
	}
	return report.Coded(report.ExitState, "%w; %w", invalid, back)
}
