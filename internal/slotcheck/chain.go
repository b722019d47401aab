package slotcheck

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"agentworks-deploy/internal/sandbox/grants"
	"agentworks-deploy/internal/sandbox/shell"
	"agentworks-deploy/internal/sandbox/slots"
)

// probeDeadline ends a probe whose chain hangs.
const probeDeadline = 30 * time.Second

// maxOutput bounds what is kept of a probe's output.
const maxOutput = 64 << 10

// makeChain is the chain as the platform's shell tool has it. The service's own
// environment is not among what it gets: the settings are all that was read.
func (a *audit) makeChain() {
	a.chain = shell.Chain{
		Sudo:      shell.Sudo,
		Slotctl:   a.slotctl,
		Launcher:  a.launcher,
		Config:    a.config,
		SlotHomes: a.layout.SlotHomes(),
		Places: grants.Places{
			Docs:          a.docs,
			State:         a.stateRoot(),
			SharedProfile: a.settings[keyProfile],
			ProfileRoot:   a.settings[keyProfileRoot],
			ConfigHome:    path.Join(a.service.Home, ".config"),
		},
		SystemPaths: a.settings[keySystemPaths],
	}
}

// stateRoot is the app's private state.
func (a *audit) stateRoot() string { return filepath.Clean(a.settings.or(keyState, a.layout.State())) }

// profileRoots are the folders that hold the projects' browser profiles.
func (a *audit) profileRoots() []string {
	p := a.chain.Places
	var roots []string
	for _, base := range []string{p.SharedProfile, p.ProfileRoot, path.Join(p.ConfigHome, "agentworks/browser-profile")} {
		if base != "" {
			roots = append(roots, path.Clean(base)+"-projects")
		}
	}
	return roots
}

// session names the managed browser of a chat in dir, in the form that the
// platform uses; which session it is means nothing to the chain.
func session(kind, dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("%s-%x--browser", kind, sum[:8])
}

// errRefused is what the platform's own grant rules say no to.
type errRefused struct{ error }

// errNoLauncher says that there is nothing to start a command with.
var errNoLauncher = errors.New("there is no launcher")

// wrapped runs one command as the shell tool would.
func (a *audit) wrapped(ctx context.Context, chain shell.Chain, cmd shell.Command) (outcome, error) {
	if a.launcherErr != nil {
		return outcome{}, errNoLauncher
	}
	call, err := chain.Wrap(cmd)
	if err != nil {
		return outcome{}, errRefused{err}
	}
	return a.capture(ctx, cmd.Slot, call)
}

// request runs one exec request as it is, without a policy.
func (a *audit) request(ctx context.Context, slot string, req slots.Request) (outcome, error) {
	call, err := a.chain.Exec(slot, req, nil)
	if err != nil {
		return outcome{}, errRefused{err}
	}
	return a.capture(ctx, slot, call)
}

// errNoAnswer ends a probe at its deadline.
var errNoAnswer = fmt.Errorf("no answer within %s", probeDeadline)

// silence remembers the slots whose chain gave no answer, so that each keeps an
// audit waiting once and not at every probe.
type silence struct {
	mu    sync.Mutex
	slots map[string]bool
}

func (s *silence) of(slot string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[slot]
}

func (s *silence) note(slot string, err error) {
	if !errors.Is(err, errNoAnswer) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots == nil {
		s.slots = map[string]bool{}
	}
	s.slots[slot] = true
}

// errSilent is the answer to a probe that was not tried.
var errSilent = errors.New("not tried: an earlier command of this slot got no answer")

// capture runs a call to its end or to the deadline. An error means that the
// check could not find out.
func (a *audit) capture(ctx context.Context, slot string, call *shell.Call) (outcome, error) {
	if a.silent.of(slot) {
		return outcome{}, errSilent
	}
	ctx, cancel := context.WithTimeoutCause(ctx, probeDeadline, errNoAnswer)
	defer cancel()
	out, err := call.Capture(ctx, maxOutput)
	a.silent.note(slot, err)
	switch {
	case err != nil:
		return outcome{}, err
	case out.Truncated:
		return outcome{}, errors.New("the answer is longer than any that is expected")
	}
	return outcome{Exit: out.Exit, Stdout: out.Stdout, Stderr: out.Stderr}, nil
}

// probeDir is where a slot's probes run that need no project: its own state
// folder, which is always there.
func (a *audit) probeDir(s subject) string { return a.layout.SlotState(s.Slot) }

// confined runs a shell script in the sandbox, with words as $1 and on. They
// travel in the environment: everybody on the host may read a command line, and
// a path may hold a user's id (case K-01).
func (a *audit) confined(ctx context.Context, s subject, script string, words ...string) (outcome, error) {
	return a.confinedBy(ctx, a.chain, s, script, words...)
}

func (a *audit) confinedBy(ctx context.Context, chain shell.Chain, s subject, script string, words ...string) (outcome, error) {
	dir := a.probeDir(s)
	var env []string
	set := ""
	for i, w := range words {
		name := "PROBE_WORD_" + strconv.Itoa(i+1)
		env = append(env, name+"="+w)
		set += ` "${` + name + `?}"` // a variable that did not arrive ends the script before it starts
	}
	if set != "" {
		script = "set --" + set + "\n" + script
	}
	return a.wrapped(ctx, chain, shell.Command{
		Slot: s.Slot, Dir: dir, Read: []string{dir}, Env: env,
		Argv: []string{"/bin/sh", "-c", script, "probe"},
	})
}
