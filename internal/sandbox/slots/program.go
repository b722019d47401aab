package slots

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// command turns the request into the words and the environment of the program
// to start, or refuses them (exit 126).
func (c *Config) command(req *Request, slot string, uid int) (argv, env []string, err error) {
	if !c.AllowsProgram(req.Argv[0]) {
		return nil, nil, fmt.Errorf("%s is not an allowed program", req.Argv[0])
	}
	env = c.environment(req.Env, uid)
	switch path.Base(req.Argv[0]) {
	case "tmux":
		argv, err = c.tmux(req.Argv, slot)
		if err == nil {
			err = usableShell(env)
		}
	case "chmod":
		argv, err = req.Argv, nil
		if len(argv) != 3 || argv[1] != "660" || argv[2] != c.TmuxSocket(slot) {
			err = fmt.Errorf("chmod may only be run as: 660 %s", c.TmuxSocket(slot))
		}
	default:
		argv = req.Argv
	}
	if err != nil {
		return nil, nil, err
	}
	return argv, env, nil
}

// environment is the caller's, but a docker socket is slotctl's to give.
func (c *Config) environment(env []string, uid int) []string {
	out := make([]string, 0, len(env)+1)
	for _, e := range env {
		if !strings.HasPrefix(e, "DOCKER_HOST=") {
			out = append(out, e)
		}
	}
	if c.SlotDocker {
		out = append(out, fmt.Sprintf("DOCKER_HOST=unix:///run/user/%d/docker.sock", uid))
	}
	return out
}

// tmux lets the slot's tmux speak to the slot's own socket only, and never read
// a configuration: ~/.tmux.conf is writable for confined commands, and tmux runs
// unconfined (case U-01).
func (c *Config) tmux(argv []string, slot string) ([]string, error) {
	sock := c.TmuxSocket(slot)
	if len(argv) < 3 || argv[1] != "-S" || argv[2] != sock {
		return nil, fmt.Errorf("tmux may only be run as: -S %s …", sock)
	}
	if err := checkTmuxFlags(argv[3:]); err != nil {
		return nil, err
	}
	return append([]string{argv[0], "-f", "/dev/null"}, argv[1:]...), nil
}

// checkTmuxFlags walks tmux's own flags, which end at its first command word,
// the way getopt does. Only flags that can neither move the socket nor name a
// configuration pass; one that this list does not know is refused.
func checkTmuxFlags(words []string) error {
	const plain, withValue = "2CDlNquUv", "cT"
	for i := 0; i < len(words); i++ {
		w := words[i]
		if len(w) < 2 || w[0] != '-' || w == "--" {
			return nil
		}
		for j := 1; j < len(w); j++ {
			if strings.IndexByte(plain, w[j]) >= 0 {
				continue
			}
			if strings.IndexByte(withValue, w[j]) < 0 {
				return fmt.Errorf("tmux flag -%c is not allowed", w[j])
			}
			if j == len(w)-1 {
				i++ // its value is the next word
			}
			break
		}
	}
	return nil
}

// usableShell wants one SHELL that tmux can start: a slot's login shell is
// nologin, and tmux would fall back to whatever it finds.
func usableShell(env []string) error {
	var shells []string
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "SHELL="); ok {
			shells = append(shells, v)
		}
	}
	if len(shells) != 1 {
		return errors.New("tmux needs exactly one SHELL in its environment")
	}
	sh := shells[0]
	var st unix.Stat_t
	usable := cleanAbs(sh) && unix.Stat(sh, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG &&
		unix.Faccessat(unix.AT_FDCWD, sh, unix.X_OK, unix.AT_EACCESS) == nil
	switch path.Base(sh) {
	case "nologin", "false", "true", "tmux":
		usable = false
	}
	if !usable {
		return fmt.Errorf("tmux needs a usable SHELL; %q is none", sh)
	}
	return nil
}
