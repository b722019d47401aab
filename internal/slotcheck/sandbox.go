package slotcheck

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/landlock"
	"agentworks-deploy/internal/sandbox/shell"
)

// checkSandbox proves what a sandbox is made of on this host, by commands and
// not by version numbers: a program that lies in the sandbox's own namespaces, a
// private /tmp that can be written and is gone, and a read that Landlock alone
// refuses.
func checkSandbox(ctx context.Context, a *audit, _ subject) []report.Row {
	if len(a.slots) == 0 {
		return skip("there is no slot to try it with")
	}
	s := a.slots[len(a.slots)-1] // the test slot, where there is one
	dir := a.probeDir(s)
	for _, kind := range []string{"user", "mnt"} {
		outside, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return unknown(fmt.Sprintf("this process's own namespaces cannot be looked at: %v", cause(err)))
		}
		// The program itself may look at its own process entry; a child may not.
		o, err := a.wrapped(ctx, a.chain, shell.Command{Slot: s.Slot, Dir: dir, Read: []string{dir},
			Argv: []string{"/usr/bin/readlink", "/proc/self/ns/" + kind}})
		inside := strings.TrimSpace(o.Stdout)
		switch {
		case err != nil:
			return a.unanswered("", err)
		case o.Exit != 0 || !strings.HasPrefix(inside, kind+":["):
			return a.nothingProven(o, nil, s)
		case inside == outside:
			return fail("a command runs in the host's own "+kind+" namespace", a.deployFix())
		}
	}
	if rows := a.privateTmp(ctx, s); rows != nil {
		return rows
	}
	target, err := a.worldReadable(s)
	if err != nil {
		return unknown(err.Error())
	}
	if rows := a.tryDenied(ctx, s, tryRead, aim{show: target.path}, target.path); rows[0].State != report.Pass {
		return rows
	}
	if rows := append(a.readOnly(), a.serviceFences(ctx)...); rows != nil {
		return rows
	}
	abi, err := landlock.Probe()
	if err != nil {
		return unknown(fmt.Sprintf("ask the kernel for its Landlock ABI: %v", err))
	}
	text := fmt.Sprintf("own user and mount namespaces, private /tmp, Landlock in force (ABI %d)", abi)
	if gaps := abi.Gaps(); len(gaps) > 0 {
		text += "; this ABI does not hold back: " + strings.Join(gaps, "; ")
	}
	return pass(text)
}

// privateTmp writes to /tmp in the sandbox and looks for it on the host. No row
// means that it is private.
func (a *audit) privateTmp(ctx context.Context, s subject) []report.Row {
	mark := rand.Text()
	name := "/tmp/slotcheck-" + rand.Text()
	o, err := a.confined(ctx, s, markScript(mark, `test -z "$(ls -A /tmp)" && : >"$1"`), name)
	if err != nil {
		return a.unanswered("", err)
	}
	status, started := marked(o.Stdout, mark)
	if !started {
		return a.nothingProven(o, nil, s)
	}
	if _, err := os.Lstat(name); err == nil {
		// The slot made it, so it is the slot's to remove.
		_, _ = a.confined(ctx, s, `rm -f -- "$1"`, name)
		return fail("a file that a command makes in /tmp is in the host's", a.deployFix())
	}
	if status != "0" {
		return fail("a command has no empty /tmp that it can write to", a.deployFix())
	}
	return nil
}

// serviceFences looks for what a user's command inherits from the service and a
// probe does not: under no_new_privs, and where root is not mapped, sudo cannot
// work, and a seccomp filter may refuse what a sandbox is made of. No row means that there is no such thing.
func (a *audit) serviceFences(ctx context.Context) []report.Row {
	running, _, err := a.services(ctx)
	if err != nil {
		return unknown(err.Error())
	}
	var rows []report.Row
	for _, s := range running {
		st, err := a.status(s.PID)
		if err != nil {
			return unknown(fmt.Sprintf("%s (pid %d) cannot be looked at: %v", s.Unit, s.PID, cause(err)))
		}
		if st["NoNewPrivs"] == "1" {
			rows = append(rows, fail(s.Unit+" runs with no_new_privs, under which its commands cannot use sudo; the probes did not run below it",
				noFix(report.OnHost, "take NoNewPrivileges= and what implies it out of "+s.Unit+", and restart it"))...)
		} else if st["Seccomp"] == "2" {
			rows = append(rows, warn(s.Unit+" runs under a seccomp filter, which its commands inherit; the probes did not run below it")...)
		}
		if !a.sameUsers(s.PID) {
			rows = append(rows, fail(s.Unit+" runs in a user namespace of its own, from which its commands cannot use sudo; the probes did not run in it",
				noFix(report.OnHost, "take PrivateUsers= and what implies it out of "+s.Unit+", and restart it"))...)
		}
	}
	return rows
}

// sameUsers says whether a process sees the user ids that this one sees; one that
// has ended does not count.
func (a *audit) sameUsers(pid int) bool {
	theirs, err := os.ReadFile(filepath.Join(a.sys.Proc, strconv.Itoa(pid), "uid_map"))
	ours, err2 := os.ReadFile(filepath.Join(a.sys.Proc, "self/uid_map"))
	return err != nil || err2 != nil || string(theirs) == string(ours)
}

// readOnly finds the folders that commands write to on file systems that nobody
// can write to: a refused write would look like the launcher's doing.
func (a *audit) readOnly() []report.Row {
	var rows []report.Row
	for _, dir := range []string{a.docs, a.layout.SlotStates(), a.layout.SlotHomes()} {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err == nil && fs.Flags&unix.ST_RDONLY != 0 {
			rows = append(rows, fail(a.shown(dir)+" is on a file system that is mounted read-only: no command can write there",
				noFix(report.OnHost, "dmesg says why; then mount -o remount,rw what findmnt -T "+report.Quote(dir)+" names"))...)
		}
	}
	return rows
}
