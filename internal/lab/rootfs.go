package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"agentworks-deploy/internal/report"
)

// recipe is everything a root file system follows from. A change in it makes
// another one, under another name.
type recipe struct {
	Version  int // raise it when finishRoot changes
	Suite    string
	Arch     string
	Packages []string
	Options  []string
	Sources  aptSources
}

// packages are what a slot host has before this project comes to it.
func packages() []string {
	return []string{
		"systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd",
		"sudo", "openssh-server", "acl", "passwd", "iproute2", "procps", "tmux",
		"bubblewrap", "ca-certificates", "curl",
	}
}

func newRecipe() (recipe, error) {
	suite, err := osRelease("/etc/os-release", "VERSION_CODENAME")
	if err != nil {
		return recipe{}, err
	}
	sources, err := readAptSources("/etc/apt", suite)
	if err != nil {
		return recipe{}, err
	}
	return recipe{
		Version: 1, Suite: suite, Arch: runtime.GOARCH, Packages: packages(), Sources: sources,
		Options: []string{
			"--variant=minbase",
			`--aptopt=APT::Install-Recommends "false"`,
			"--dpkgopt=path-exclude=/usr/share/doc/*",
			"--dpkgopt=path-exclude=/usr/share/man/*",
			"--dpkgopt=path-exclude=/usr/share/locale/*",
		},
	}, nil
}

// name is the root file system's folder below the cache.
func (r recipe) name() (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return "rootfs-" + r.Suite + "-" + hex.EncodeToString(sum[:8]), nil
}

// osRelease reads one value of an os-release file.
func osRelease(path, key string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok && value != "" {
			return strings.Trim(value, `"'`), nil
		}
	}
	return "", fmt.Errorf("%s has no %s; the lab needs a Debian machine", path, key)
}

// making is the suffix of a root file system that is not complete.
const making = ".making"

// rootFS returns the name of the root file system for today's recipe and makes
// it where it is missing. Labs that start at once wait for the one that makes it.
func (s Store) rootFS(ctx context.Context, progress func(string)) (string, error) {
	r, err := newRecipe()
	if err != nil {
		return "", err
	}
	name, err := r.name()
	if err != nil {
		return "", err
	}
	target := filepath.Join(s.Cache, name)
	if _, err := os.Stat(target); err == nil {
		return name, nil
	}
	lock, err := waitLock(ctx, s.cacheLock(), "making "+name, func(holder string) {
		progress("waiting for the root file system that another run makes (" + holder + ")")
	})
	if err != nil {
		return "", fmt.Errorf("lock the root file systems: %w", err)
	}
	defer lock.release()
	if _, err := os.Stat(target); err == nil {
		return name, nil
	}
	if err := s.dropUnfinished(); err != nil {
		return "", err
	}
	progress("making the root file system in " + target + " (once, about a minute)")
	if err := r.build(ctx, target+making); err != nil {
		return "", err
	}
	return name, os.Rename(target+making, target)
}

func (s Store) cacheLock() string { return filepath.Join(s.Cache, ".lock") }

// dropUnfinished removes what a making that was killed left behind. The caller
// holds the cache lock.
func (s Store) dropUnfinished() error {
	left, err := filepath.Glob(filepath.Join(s.Cache, "*"+making))
	if err != nil {
		return err
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove an unfinished root file system: %w", err)
		}
	}
	return nil
}

// build runs mmdebstrap in pid and mount namespaces of its own, which end with
// us: a killed lab up leaves no package manager behind and nothing mounted.
func (r recipe) build(ctx context.Context, dir string) error {
	for _, program := range []string{"mmdebstrap", "unshare"} {
		if _, err := exec.LookPath(program); err != nil {
			return report.Coded(report.ExitState, "%s is not installed, and the lab's root file system is made with it; install it: apt-get install mmdebstrap util-linux", program)
		}
	}
	// Whatever is written on the way lies here, and goes with the unfinished root.
	scratch := strings.TrimSuffix(dir, making) + ".scratch" + making
	if err := os.Mkdir(scratch, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	args := []string{"--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "mmdebstrap"}
	args = append(args, r.Options...)
	args = append(args, "--include="+strings.Join(r.Packages, ","), "--architectures="+r.Arch)
	acquire, err := machineAcquire(ctx)
	if err != nil {
		return err
	}
	files := map[string]string{"lab.list": r.Sources.Lines, "lab.sources": r.Sources.Stanzas, "apt.conf": acquire}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(scratch, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	args = append(args, "--aptopt="+filepath.Join(scratch, "apt.conf"), r.Suite, dir)
	if r.Sources.Lines != "" {
		args = append(args, filepath.Join(scratch, "lab.list"))
	}
	if r.Sources.Stanzas != "" {
		args = append(args, filepath.Join(scratch, "lab.sources"))
	}
	cmd := exec.CommandContext(ctx, "unshare", args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+scratch)
	said, err := runTied(cmd)
	if err != nil {
		return fmt.Errorf("make the root file system with mmdebstrap: %w\n%s", err, lastLines(said, 12))
	}
	return finishRoot(dir)
}

// runTied runs a program that the kernel kills when we die, and returns all it
// said. A terminal's signals are for us alone.
func runTied(cmd *exec.Cmd) ([]byte, error) {
	// The kernel looks at the thread that forked, not at the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return cmd.CombinedOutput()
}

// machineAcquire is how this machine's apt reaches its sources: proxies, and
// whether a frozen mirror's expiry date counts.
func machineAcquire(ctx context.Context) (string, error) {
	dump, err := exec.CommandContext(ctx, "apt-config", "dump").Output()
	if err != nil {
		return "", fmt.Errorf("ask apt for its settings: %w", err)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(dump)) {
		for _, prefix := range []string{"Acquire::Check-", "Acquire::Retries", "Acquire::http::", "Acquire::https::"} {
			if strings.HasPrefix(line, prefix) {
				kept.WriteString(line)
			}
		}
	}
	return kept.String(), nil
}

// finishRoot takes away what a lab must not have from the machine or do by
// itself. Everything in dir is the distribution's.
func finishRoot(dir string) error {
	files := map[string]string{
		"etc/machine-id":  "", // systemd makes one for each lab
		"etc/resolv.conf": "# a lab has no network of its own\n",
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
		if err := os.Chmod(path, 0o644); err != nil {
			return err
		}
	}
	// Written by each lab at its first start.
	if err := os.Remove(filepath.Join(dir, "etc/hostname")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Without a network these would only fail, a day later.
	for _, timer := range []string{"apt-daily.timer", "apt-daily-upgrade.timer"} {
		if err := os.Symlink("/dev/null", filepath.Join(dir, "etc/systemd/system", timer)); err != nil {
			return err
		}
	}
	return nil
}

func lastLines(text []byte, n int) []byte {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}
