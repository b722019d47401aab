package slots

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Exit codes of slotctl; any other is the program's own, or 128+n when signal n
// ended it.
const (
	ExitMalformed = 125 // unreadable or malformed request, no namespaces
	ExitRefused   = 126
	ExitNotFound  = 127 // could not start
)

// failure is an error with slotctl's exit code and the words before it.
type failure struct {
	code   int
	prefix string
	err    error
}

func (f *failure) Error() string { return f.prefix + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func refusal(err error) error { return &failure{ExitRefused, "slotctl: refused: ", err} }

func malformed(err error) error {
	return &failure{ExitMalformed, "slotctl: unreadable or malformed request: ", err}
}

// System is what slotctl looks at besides its config and its caller.
type System struct {
	Passwd, Group string // account files
	Proc          string // process table
}

// Main is slotctl: args are the words after the program's name. It reads one
// request, runs its program and returns the exit code. It keeps the calling
// goroutine on its thread, because the program is killed when that thread ends;
// the caller sets the umask first and must exit with the code.
func Main(args []string, sys System, stdin *os.File, stderr io.Writer) int {
	runtime.LockOSThread()
	code, err := run(args, sys, stdin)
	if err == nil {
		return code
	}
	fmt.Fprintln(stderr, err)
	var f *failure
	if errors.As(err, &f) {
		return f.code
	}
	return ExitRefused
}

func run(args []string, sys System, stdin *os.File) (int, error) {
	var file string
	switch {
	case len(args) == 1 && args[0] == "exec":
	case len(args) == 3 && args[0] == "exec" && args[1] == "--request-file" && args[2] != "":
		file = args[2]
	default:
		return 0, refusal(errors.New("the words must be: exec"))
	}
	if err := settle(); err != nil {
		return 0, refusal(err)
	}
	cfg, slot, id, err := whoAmI(sys)
	if err != nil {
		return 0, refusal(err)
	}

	req, stdin, err := readRequest(file, cfg.RunDir(slot), stdin)
	if err != nil {
		return 0, err
	}
	defer stdin.Close()

	table := processTable(sys.Proc)
	c, err := admit(req, cfg, slot, id, table)
	if err != nil {
		return 0, refusal(err)
	}
	c.files = []uintptr{stdin.Fd(), 1, 2}
	if req.FD3 != nil {
		f, err := sealed(*req.FD3)
		if err != nil {
			return 0, &failure{ExitNotFound, "slotctl: ", err}
		}
		defer f.Close()
		c.files = append(c.files, f.Fd())
	}
	r := newRunner(table)
	pid, err := c.start()
	if err != nil {
		return 0, startFailure(c, slot, err)
	}
	return r.wait(pid), nil
}

// readRequest reads the request and says what the program's standard input is:
// the request's stream is used up, so there is none, but beside a request file
// the caller's own remains.
func readRequest(file, runDir string, stdin *os.File) (*Request, *os.File, error) {
	if file != "" {
		req, err := readRequestFile(file, runDir)
		return req, stdin, err
	}
	req, err := ReadRequest(stdin)
	if err != nil {
		return nil, nil, malformed(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, refusal(err)
	}
	return req, null, nil
}

// settle ties slotctl to its parent's life, makes orphans of its program come
// to it, and marks every descriptor that it was given beyond 0-2 to be closed.
func settle() error {
	parent := os.Getppid()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return fmt.Errorf("ask for the parent's death: %w", err)
	}
	if os.Getppid() != parent { // it died before the kernel knew (case S20)
		return errors.New("the caller is gone")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphans: %w", err)
	}
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	return nil
}

func whoAmI(sys System) (*Config, string, Identity, error) {
	id, err := CurrentIdentity()
	if err != nil {
		return nil, "", id, err
	}
	file, err := configBesideSelf()
	if err != nil {
		return nil, "", id, err
	}
	cfg, err := LoadConfig(file)
	if err != nil {
		return nil, "", id, err
	}
	accounts, err := ReadAccounts(sys.Passwd, sys.Group)
	if err != nil {
		return nil, "", id, err
	}
	stateGID, err := groupOwning(cfg.SlotStateRoot)
	if err != nil {
		return nil, "", id, err
	}
	slot, err := accounts.SlotOf(id, cfg.SlotPrefix, stateGID)
	return cfg, slot, id, err
}

// admit holds the request against the allow-list, enters its folder and counts
// the slot's commands.
func admit(req *Request, cfg *Config, slot string, id Identity, table processTable) (*child, error) {
	if req.Channel {
		return nil, errors.New("channel is not offered by this slotctl")
	}
	if err := req.check(); err != nil {
		return nil, err
	}
	argv, env, err := cfg.command(req, slot, id.EUID)
	if err != nil {
		return nil, err
	}
	if _, err := enterCwd(req.Cwd, cfg.AllowedCwd); err != nil {
		return nil, err
	}
	ok, err := table.admitted(cfg.MaxCommands)
	if err != nil {
		return nil, fmt.Errorf("count the running commands: %w", err)
	}
	if !ok {
		return nil, fmt.Errorf("%s already runs %d commands at once (max_commands)", slot, cfg.MaxCommands)
	}
	return &child{
		argv: argv, env: env, userns: req.UserNS, uid: id.EUID, gid: id.EGID, processes: uint64(cfg.MaxProcesses),
	}, nil
}

// startFailure finds out why nothing was started. Namespaces that the host does
// not give are the sandbox's failure and not the program's: never run anyway.
func startFailure(c *child, slot string, err error) error {
	file := c.argv[0]
	if errors.Is(err, unix.EAGAIN) {
		return refusal(fmt.Errorf("%s already has %d processes and threads, or as many as the host gives it (max_processes)", slot, c.processes))
	}
	if why := unreachable(file, slot); why != "" {
		return &failure{ExitNotFound, "slotctl: ", fmt.Errorf("cannot start %s: %s", file, why)}
	}
	if c.userns {
		for _, e := range []error{unix.EPERM, unix.ENOSPC, unix.EUSERS, unix.EINVAL, unix.ENOSYS} {
			if errors.Is(err, e) {
				return &failure{ExitMalformed, "SANDBOX_UNAVAILABLE: ", fmt.Errorf("user namespace for %s: %w (see user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns)", slot, err)}
			}
		}
	}
	return &failure{ExitNotFound, "slotctl: ", fmt.Errorf("cannot start %s: %w", file, err)}
}
