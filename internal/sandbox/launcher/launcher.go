// Package launcher is the program that confines one command: it reads a policy,
// makes the command's own view of the file system, gives up every capability,
// puts one Landlock ruleset in force and becomes the command. It fails closed:
// whatever cannot be done as asked refuses the command.
//
// It imports policy, landlock, x/sys and the standard library alone, and only
// cmd/landlock-runner may import it: it changes the thread it runs on for good.
// What it promises is written down in docs/sandbox.md.
package launcher

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/sandbox/landlock"
	"agentworks-deploy/internal/sandbox/policy"
)

// Exit codes of the launcher itself. A command that started keeps its own.
const (
	exitRefused       = 125
	exitNotExecutable = 126
	exitNotFound      = 127
)

// Run confines and becomes the command that args name ("--config FILE --
// PROGRAM …"); env is the command's whole environment. It returns only when
// nothing was started, or when it had to stay as the command's parent, with
// the exit code to end with. It must be called on the process's first thread,
// locked for good (runtime.LockOSThread in an init function): namespaces,
// capabilities and the ruleset belong to a thread, and the thread that execs
// must be the one that has them.
func Run(args, env []string) int {
	code, err := run(args, env)
	if err == nil {
		return code
	}
	say("SANDBOX_UNAVAILABLE: " + err.Error())
	var failed *execError
	if errors.As(err, &failed) {
		return failed.exitCode()
	}
	return exitRefused
}

func run(args, env []string) (int, error) {
	cmd, err := parseArgs(args)
	if err != nil {
		return 0, err
	}
	abi, err := landlock.Probe()
	if err != nil {
		return 0, err
	}
	if err := abi.Check(); err != nil {
		return 0, err
	}
	self, err := lookAtSelf()
	if err != nil {
		return 0, err
	}
	if err := self.mayLaunch(); err != nil {
		return 0, err
	}
	conf, err := readConfig(cmd)
	if err != nil {
		return 0, err
	}
	if needsMounts(&conf.policy) && !self.canMount() {
		if cmd.namespaced {
			return 0, errors.New("user namespace: it gives no CAP_SYS_ADMIN and CAP_SETPCAP here")
		}
		return launchInNamespace(cmd, env, self, conf)
	}
	return 0, confine(cmd, env, self, conf, abi)
}

// confine does the work in the order that docs/sandbox.md gives, and does not
// return when the command started. Where mounts can be made they are, also for a
// policy that asks for none: /run is closed whatever it says.
func confine(cmd command, env []string, self identity, conf config, abi landlock.ABI) error {
	mounts := self.canMount()
	if mounts {
		if err := ownMountNamespace(); err != nil {
			return err
		}
	}
	open := opener{follow: self.linkRule(conf.links), own: self.own}
	set, err := openPolicy(open, &conf.policy, env)
	if err != nil {
		return err
	}
	for _, path := range set.skipped {
		say("SANDBOX_GRANT_SKIPPED: " + path + " is not accessible to this account; it is not granted")
	}
	view := &view{}
	if mounts {
		if view, err = makeView(set, &conf.policy); err != nil {
			return err
		}
	}
	rules, err := ruleset(abi, set, view)
	if err != nil {
		return err
	}
	if err := view.enter(set.workDir); err != nil {
		return fmt.Errorf("work_dir: %w", err)
	}
	if err := closeDescriptors(); err != nil {
		return err
	}
	if err := dropCapabilities(self.canDropBounding()); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := rules.Restrict(); err != nil {
		return err
	}
	return execute(cmd.argv, env)
}

// needsMounts says whether the policy asks for anything that only a mount
// namespace can give.
func needsMounts(p *policy.Policy) bool {
	return p.PrivateTmp || p.PrivatePTS || ownSharedMemory(p) ||
		len(p.PrivateRoots)+len(p.HiddenPaths)+len(p.ReadOnlyOverlays) > 0
}

// ruleset puts every grant into one Landlock ruleset. A grant on the very
// folder of a private area speaks of that area, not of what it covers.
func ruleset(abi landlock.ABI, set *grantSet, view *view) (*landlock.Ruleset, error) {
	rules, err := landlock.Create(abi)
	if err != nil {
		return nil, err
	}
	for _, g := range set.grants {
		if view.areaAt(g.path) != nil {
			continue
		}
		if err := rules.Allow(g.fd, g.mode, g.kind.rights()); err != nil {
			return nil, fmt.Errorf("grant %s: %w", quote(g.name), err)
		}
	}
	for _, area := range view.areas {
		if err := rules.Allow(area.tree, unix.S_IFDIR, area.rights); err != nil {
			return nil, fmt.Errorf("private %s: %w", quote(area.path), err)
		}
	}
	return rules, nil
}

// closeDescriptors leaves the command nothing but descriptors 0 to 2. The
// kernel closes the others on exec, all at once; until then the launcher needs
// some itself. A folder on 0 to 2 would be a way round every cover.
func closeDescriptors() error {
	for fd := range 3 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return fmt.Errorf("descriptor %d is a folder", fd)
		}
	}
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close descriptors: %w", err)
	}
	return nil
}

// say writes one line to standard error, whatever bytes a path in it holds.
func say(line string) {
	var text strings.Builder
	for _, r := range []byte(line) {
		if r < 0x20 || r == 0x7f {
			fmt.Fprintf(&text, `\x%02x`, r)
			continue
		}
		text.WriteByte(r)
	}
	text.WriteByte('\n')
	// Nobody is left to tell when standard error itself is gone.
	_, _ = unix.Write(2, []byte(text.String()))
}

// quote marks a path inside a sentence where it would not stand out by itself.
func quote(path string) string {
	if strings.ContainsAny(path, " \t\n'\"") {
		return fmt.Sprintf("%q", path)
	}
	return path
}
