package admission

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"agentworks-deploy/internal/hosts"
)

// fenceDeadline bounds the probe.
const fenceDeadline = 10 * time.Second

// Namespaces tries, as the account the process runs as, what every command's
// sandbox is made of: a user namespace with mounts of its own and an empty /tmp
// in it. It is a real try and no look at settings, and leaves nothing behind.
//
// Where AppArmor allows user namespaces to named programs only, this program may
// not be one of them while the release's are; then the profile that provisioning
// installs has to be there, and the self-test proves the rest.
func Namespaces(layout hosts.Layout) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		err := tryPrivateTmp(ctx)
		if err == nil || !restrictedByAppArmor() {
			return err
		}
		if _, missing := os.Stat(layout.AppArmorProfile()); errors.Is(missing, fs.ErrNotExist) {
			return fmt.Errorf("%w; AppArmor restricts them, and there is no %s", err, layout.AppArmorProfile())
		}
		return nil
	}
}

func tryPrivateTmp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fenceDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/mount", "-n", "-t", "tmpfs", "-o", "nosuid,nodev", "tmpfs", "/tmp")
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("no answer within %s", fenceDeadline)
	case errors.As(err, &exit):
		return fmt.Errorf("mount a tmpfs on /tmp in a namespace of its own: %s", strings.TrimSpace(string(out)))
	}
	return fmt.Errorf("make a user and a mount namespace: %w", reason(err))
}

func restrictedByAppArmor() bool {
	data, err := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	return err == nil && strings.TrimSpace(string(data)) == "1"
}
