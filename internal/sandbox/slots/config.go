package slots

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ConfigName is the allow-list's name beside slotctl.
const ConfigName = "slotctl.json"

// DefaultMaxCommands is how many commands of one slot run at once, and
// DefaultMaxProcesses how many processes and threads one slot has, where the
// config does not say.
const (
	DefaultMaxCommands  = 32
	DefaultMaxProcesses = 4096
)

const maxConfig = 1 << 20

// Config is slotctl.json, the allow-list that root writes beside slotctl. Keys
// it does not know are left to newer programs.
type Config struct {
	SlotPrefix string `json:"slot_prefix"`
	// SlotDocker gives commands the slot's own docker socket as DOCKER_HOST.
	SlotDocker bool `json:"slot_docker"`
	// AllowedExec lists absolute programs; a segment "*" stands for exactly one
	// path segment.
	AllowedExec []string `json:"allowed_exec"`
	// AllowedCwd lists the roots a working folder must lie in; links are
	// resolved on both sides.
	AllowedCwd    []string `json:"allowed_cwd"`
	SlotRunRoot   string   `json:"slot_run_root"`
	SlotStateRoot string   `json:"slot_state_root"`
	DocsRoot      string   `json:"docs_root"`
	SlotTable     string   `json:"slot_table"`
	// MaxCommands bounds the commands of one slot that run at once.
	MaxCommands int `json:"max_commands,omitempty"`
	// MaxProcesses bounds the processes and threads of one slot.
	MaxProcesses int `json:"max_processes,omitempty"`
}

// ParseConfig reads and checks the text of a slotctl.json.
func ParseConfig(data []byte) (*Config, error) {
	c := &Config{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("parse %s: %w", ConfigName, err)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("check %s: %w", ConfigName, err)
	}
	if c.MaxCommands == 0 {
		c.MaxCommands = DefaultMaxCommands
	}
	if c.MaxProcesses == 0 {
		c.MaxProcesses = DefaultMaxProcesses
	}
	return c, nil
}

func (c *Config) check() error {
	if !ValidPrefix(c.SlotPrefix) {
		return fmt.Errorf("slot_prefix %q is no slot prefix", c.SlotPrefix)
	}
	if c.MaxCommands < 0 {
		return fmt.Errorf("max_commands %d is negative", c.MaxCommands)
	}
	if c.MaxProcesses < 0 {
		return fmt.Errorf("max_processes %d is negative", c.MaxProcesses)
	}
	for _, f := range []struct {
		key, value string
		required   bool
	}{
		{"slot_run_root", c.SlotRunRoot, true},
		{"slot_state_root", c.SlotStateRoot, true},
		{"docs_root", c.DocsRoot, false},
		{"slot_table", c.SlotTable, false},
	} {
		if (f.required || f.value != "") && !cleanAbs(f.value) {
			return fmt.Errorf("%s %q is not a clean absolute path", f.key, f.value)
		}
	}
	for _, p := range c.AllowedExec {
		if !cleanAbs(p) {
			return fmt.Errorf("allowed_exec %q is not a clean absolute path", p)
		}
		for seg := range strings.SplitSeq(p, "/") {
			if seg != "*" && strings.Contains(seg, "*") {
				return fmt.Errorf("allowed_exec %q: '*' must be a whole path segment", p)
			}
		}
	}
	for _, p := range c.AllowedCwd {
		if !cleanAbs(p) {
			return fmt.Errorf("allowed_cwd %q is not a clean absolute path", p)
		}
	}
	return nil
}

// AllowsProgram says whether allowed_exec lists program, which must be an
// absolute, clean path. It is the one matcher of slotctl and of the audit.
func (c *Config) AllowsProgram(program string) bool {
	if !cleanAbs(program) {
		return false
	}
	segs := strings.Split(program, "/")
	for _, pattern := range c.AllowedExec {
		if matchSegments(strings.Split(pattern, "/"), segs) {
			return true
		}
	}
	return false
}

func matchSegments(pattern, segs []string) bool {
	if len(pattern) != len(segs) {
		return false
	}
	for i, p := range pattern {
		if p != "*" && p != segs[i] {
			return false
		}
	}
	return true
}

// RunDir is the slot's folder for short-lived files.
func (c *Config) RunDir(slot string) string { return path.Join(c.SlotRunRoot, slot) }

// TmuxSocket is the only socket the slot's tmux may use.
func (c *Config) TmuxSocket(slot string) string { return path.Join(c.RunDir(slot), "tmux.sock") }

// LoadConfig reads the slotctl.json at file. It refuses one that root does not
// own or that group or others may write, and the same for its folder: whoever
// can change the allow-list is whoever may run programs as every slot (C-08).
func LoadConfig(file string) (*Config, error) {
	dir, err := openRootOwned(unix.AT_FDCWD, filepath.Dir(file), unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := openRootOwned(int(dir.Fd()), filepath.Base(file), unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(data) > maxConfig {
		return nil, fmt.Errorf("read %s: longer than %d bytes", file, maxConfig)
	}
	return ParseConfig(data)
}

func openRootOwned(at int, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, fmt.Errorf("stat %s: %w", name, err)
	}
	kind := uint32(unix.S_IFREG)
	if flags&unix.O_DIRECTORY != 0 {
		kind = unix.S_IFDIR
	}
	switch {
	case st.Mode&unix.S_IFMT != kind:
		err = fmt.Errorf("%s is not a regular file", name)
	case st.Uid != 0:
		err = fmt.Errorf("%s is owned by uid %d, not by root", name, st.Uid)
	case st.Mode&0o022 != 0:
		err = fmt.Errorf("%s is writable by group or others (mode %04o)", name, st.Mode&0o7777)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// configBesideSelf finds the config by the running program, never by a caller's
// word or the environment.
func configBesideSelf() (string, error) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("find slotctl's own folder: %w", err)
	}
	if !filepath.IsAbs(exe) {
		return "", errors.New("find slotctl's own folder: the program has no path")
	}
	return filepath.Join(filepath.Dir(exe), ConfigName), nil
}

func cleanAbs(p string) bool {
	return strings.HasPrefix(p, "/") && path.Clean(p) == p && !strings.Contains(p, "\x00")
}
