package launcher

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

const usage = "usage: --config <file or /proc/self/fd/3> -- <absolute program> [argument…]"

// namespacedFlag marks the copy of the launcher that launchInNamespace starts;
// its config is a handover, not a plain policy.
const namespacedFlag = "--namespaced"

// command is what the launcher's own words say.
type command struct {
	self       string // argv[0]
	configPath string
	namespaced bool
	argv       []string // the program and its arguments
}

func parseArgs(args []string) (command, error) {
	var cmd command
	if len(args) == 0 {
		return cmd, errors.New(usage)
	}
	cmd.self, args = args[0], args[1:]
	if len(args) > 0 && args[0] == namespacedFlag {
		cmd.namespaced, args = true, args[1:]
	}
	if len(args) < 4 || args[0] != "--config" || args[2] != "--" {
		return cmd, errors.New(usage)
	}
	cmd.configPath, cmd.argv = args[1], args[3:]
	if !strings.HasPrefix(cmd.argv[0], "/") {
		return cmd, &execError{path: cmd.argv[0], why: errors.New("not an absolute path")}
	}
	return cmd, nil
}

// execError says that the program itself could not be executed.
type execError struct {
	path string
	why  error
}

func (e *execError) Error() string { return fmt.Sprintf("execute %s: %v", e.path, e.why) }
func (e *execError) Unwrap() error { return e.why }

// exitCode is 127 where there is no such program, else 126, as in a shell.
func (e *execError) exitCode() int {
	if errors.Is(e.why, unix.ENOENT) {
		return exitNotFound
	}
	return exitNotExecutable
}

// execute becomes the program; it returns only when that failed.
func execute(argv, env []string) error {
	return &execError{path: argv[0], why: unix.Exec(argv[0], argv, env)}
}
