package shell

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"agentworks-deploy/internal/sandbox/grants"
	"agentworks-deploy/internal/sandbox/policy"
	"agentworks-deploy/internal/sandbox/slots"
)

// Sudo is where every host has it.
const Sudo = "/usr/bin/sudo"

// Chain is the way from the service account to a slot on one host.
type Chain struct {
	Sudo     string // Sudo
	Slotctl  string // LIBEXEC/slotctl
	Launcher string // absolute, links resolved, as slotctl's allow-list wants it
	Config   *slots.Config
	// SlotHomes is the parent of the slots' homes.
	SlotHomes string
	Places    grants.Places
	// SystemPaths is the service's SANDBOX_EXTRA_SYSTEM_PATHS: what an
	// administrator opened to every command, as a list with colons.
	SystemPaths string
	// Environ is the service's environment, of which an allow-list passes.
	Environ []string
}

// Command is one command of a user.
type Command struct {
	Slot string
	// Dir is the working folder. It is granted only when Read or Write hold it.
	Dir         string
	Read, Write []string
	// BrowserSession names the session of the chat's managed browser, if any.
	BrowserSession string
	// Env holds the command's own variables, NAME=value.
	Env []string
	// Argv is the program and its arguments. A program without a leading slash
	// is looked for in the command's PATH, inside the sandbox.
	Argv []string
	// Unfiltered is for probes alone: read grants that no filter has seen, to
	// show what the launcher makes of a path that it may not look at.
	Unfiltered []string
}

// Wrap makes the call that runs cmd confined as its slot. Grants that a slot
// never gets are left out and listed in Call.Dropped. The folders of the service
// among Write are opened to their group first; with no Write nothing on the host
// changes.
func (c *Chain) Wrap(cmd Command) (*Call, error) {
	if len(cmd.Argv) == 0 {
		return nil, errors.New("wrap command: no program")
	}
	if err := c.check(cmd); err != nil {
		return nil, fmt.Errorf("wrap command: %w", err)
	}
	rules := c.rules(cmd.Slot)
	if _, dropped := rules.Filter([]string{cmd.Dir}); dropped != nil {
		return nil, fmt.Errorf("wrap command: working folder %s", dropped[0])
	}
	wanted := cmd.Write
	if cmd.BrowserSession != "" {
		wanted = append(wanted[:len(wanted):len(wanted)], c.Places.SessionPaths(cmd.BrowserSession)...)
	}
	write, dropped := rules.Filter(wanted)
	read, more := rules.Filter(cmd.Read)
	if err := grants.Prepare(c.Places.Docs, write); err != nil {
		return nil, err
	}
	call, err := c.Exec(cmd.Slot, slots.Request{
		Argv:   c.launch(cmd.Argv),
		Cwd:    cmd.Dir,
		Env:    c.environment(cmd),
		UserNS: true,
	}, &policy.Policy{
		ReadPaths:     append(read, cmd.Unfiltered...),
		WritePaths:    write,
		WorkDir:       cmd.Dir,
		PrivateTmp:    true,
		PrivateRoots:  []string{c.Config.SlotRunRoot},
		BrowserScoped: true,
		PrivatePTS:    true,
	})
	if err != nil {
		return nil, err
	}
	call.Dropped = append(dropped, more...)
	return call, nil
}

// Exec makes the call for any exec request, as it is; p, where it is not nil, is
// the policy on descriptor 3.
func (c *Chain) Exec(slot string, req slots.Request, p *policy.Policy) (*Call, error) {
	if !slots.ValidSlot(c.Config.SlotPrefix, slot) {
		return nil, fmt.Errorf("exec request: %q is no slot of prefix %q", slot, c.Config.SlotPrefix)
	}
	if p != nil {
		text, err := json.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("exec request: policy: %w", err)
		}
		fd3 := string(text)
		req.FD3 = &fd3
	}
	text, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("exec request: %w", err)
	}
	if len(text) > slots.MaxRequest {
		return nil, fmt.Errorf("exec request: longer than %d bytes", slots.MaxRequest)
	}
	return &Call{slot: slot, argv: []string{c.Sudo, "-n", "-u", slot, c.Slotctl, "exec"}, request: text}, nil
}

// check refuses what JSON would change silently, and a session that is a path.
func (c *Chain) check(cmd Command) error {
	if !path.IsAbs(cmd.Dir) {
		return fmt.Errorf("working folder %q is not absolute", cmd.Dir)
	}
	if cmd.BrowserSession != "" {
		if err := grants.CheckSession(cmd.BrowserSession); err != nil {
			return err
		}
	}
	for _, list := range [][]string{{cmd.Dir}, cmd.Argv, cmd.Env, cmd.Read, cmd.Write, cmd.Unfiltered} {
		for _, s := range list {
			if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
				return fmt.Errorf("%q is not text that a request can carry", s)
			}
		}
	}
	return nil
}

// rules are those of one slot: the docs root, its own home and state, and what
// the administrator opened. Its run folder holds the socket of its unconfined
// tmux and is never granted (case L-07).
func (c *Chain) rules(slot string) grants.Rules {
	roots := []string{c.Places.Docs, c.home(slot), path.Join(c.Config.SlotStateRoot, slot)}
	for p := range strings.SplitSeq(c.SystemPaths, ":") {
		if path.IsAbs(p) {
			roots = append(roots, p)
		}
	}
	return grants.Rules{Private: c.Places.PrivateRoots(), Roots: roots}
}

func (c *Chain) home(slot string) string { return path.Join(c.SlotHomes, slot) }

// launch puts the launcher before the command. A shell looks for a program
// without a slash, since the launcher takes none but an absolute one.
func (c *Chain) launch(argv []string) []string {
	words := []string{c.Launcher, "--config", "/proc/self/fd/3", "--"}
	if !path.IsAbs(argv[0]) {
		words = append(words, "/bin/sh", "-c", `exec "$0" "$@"`)
	}
	return append(words, argv...)
}

func (c *Chain) environment(cmd Command) []string {
	facts := []string{
		"HOME=" + c.home(cmd.Slot), "USER=" + cmd.Slot, "LOGNAME=" + cmd.Slot,
		"SHELL=/bin/sh", "PWD=" + path.Clean(cmd.Dir), "TMPDIR=/tmp",
	}
	if c.SystemPaths != "" { // the launcher reads it
		facts = append(facts, "SANDBOX_EXTRA_SYSTEM_PATHS="+c.SystemPaths)
	}
	parent := c.Environ
	if !hasPath(parent) {
		parent = append(parent[:len(parent):len(parent)], "PATH=/usr/local/bin:/usr/bin:/bin")
	}
	return grants.Slot(parent, facts, cmd.Env)
}

func hasPath(env []string) bool {
	for _, e := range env {
		if strings.HasPrefix(e, "PATH=") && e != "PATH=" {
			return true
		}
	}
	return false
}
