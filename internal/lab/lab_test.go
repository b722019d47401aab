package lab_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/lab"
	"agentworks-deploy/internal/lab/labtest"
	"agentworks-deploy/internal/report"
)

// What the programs of a slot host need works: each command prints want.
func TestAHostLikeAnyOther(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	l.MustExec(t, "sh", "-ec", `
		useradd --create-home --shell /bin/bash person
		echo 'person ALL=(vs) NOPASSWD: /usr/bin/id' >/etc/sudoers.d/person
		chmod 0440 /etc/sudoers.d/person
		loginctl enable-linger person
		runuser -u person -- ssh-keygen -q -t ed25519 -N '' -f /home/person/.ssh/id_ed25519
		runuser -u person -- cp /home/person/.ssh/id_ed25519.pub /home/person/.ssh/authorized_keys`)
	const ssh = "ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR person@localhost "
	for _, c := range []struct{ name, user, command, want string }{
		{"systemd is process 1", "root", "ps -o comm= 1", "systemd"},
		{"systemd has nothing to complain about", "root", "systemctl is-system-running", "running"},
		{"the host has its own name", "root", "hostname", l.Name},
		{"the lab's cgroup is the root", "root", "cat /proc/1/cgroup | sed -n 's/^0:://p'", "/init.scope"},
		{"a command lies in the lab's cgroup", "root", "sed -n 's/^0:://p' /proc/self/cgroup", "/lab.exec"},
		{"only the loop back interface", "root", "ls /sys/class/net", "lo"},
		{"the journal", "root", "logger --id=1 hello-journal; journalctl --sync; journalctl -q -o cat -g hello-journal", "hello-journal"},
		{"sudo, and nothing said on standard error", "person", "sudo -n -u vs /usr/bin/id -un 2>&1", "vs"},
		{"visudo", "root", "visudo -cq && echo fine", "fine"},
		{"access lists", "root", "cd /srv && touch acl && setfacl -m u:person:rw acl && getfacl -cp acl | grep person", "user:person:rw-"},
		{"sshd as a unit", "person", ssh + "id -un", "person"},
		{"a user manager through ssh", "person", ssh + "systemctl --user is-system-running --wait", "running"},
		{"a user manager by linger", "person", "XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user is-system-running", "running"},
		{"a user manager from root", "root", "systemctl --user -M person@ is-system-running", "running"},
		{"a limit is taken", "root", "systemd-run -q --wait --pipe -p MemoryMax=50M -p TasksMax=20 echo limited", "limited"},
		{"bubblewrap with a new proc, as anybody", "person", "bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev -- sh -c 'echo inside $$'", "inside 2"},
		{"a user namespace with a new sysfs", "person", "unshare -Urmn sh -c 'mount -t sysfs sysfs /sys && echo mounted'", "mounted"},
		{"tmux on a terminal of the lab", "person", "tmux -S /tmp/t new-session -d 'tty >/tmp/tty; sleep 60' && until grep -q pts /tmp/tty; do :; done; dirname $(cat /tmp/tty); tmux -S /tmp/t kill-server", "/dev/pts"},
		{"reference: the account", "vs", "id -un; id -gn; echo $HOME", "vs\nvs\n/srv/vs/home"},
		{"reference: no user manager yet", "root", "systemctl is-active user@$(id -u vs).service", "inactive"},
		{"reference: secrets are closed", "root", "cd /srv/vs; stat -c '%a %U:%G' .env data/docs/config/users.json state", "600 vs:vs\n600 vs:vs\n700 vs:vs"},
		{"reference: the never granted file is open", "nobody", "cat /srv/vs/data/docs/Workflow/wf2/public.txt", "readable by everybody, granted to nobody"},
		{"reference: the units are enabled", "vs", "cd; readlink -e .config/systemd/user/default.target.wants/vs-agent.service", "/srv/vs/home/.config/systemd/user/vs-agent.service"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr, _ := l.ExecAs(t, c.user, "bash", "-c", c.command)
			if got := strings.TrimSpace(stdout); got != c.want {
				t.Errorf("got %q, want %q; on standard error: %s", got, c.want, stderr)
			}
		})
	}
}

// What would reach the machine does not.
func TestTheMachineIsOutOfReach(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	for _, c := range []struct{ name, command, want string }{
		{"kernel settings", "echo 1 2>/dev/null >/proc/sys/kernel/panic || echo refused", "refused"},
		{"devices in sysfs", "mkdir /sys/x 2>/dev/null || touch /sys/kernel/x 2>/dev/null || echo refused", "refused"},
		{"disks", "find /dev -type b | wc -l", "0"},
		{"new device nodes", "mknod /tmp/disk b 254 0 2>/dev/null || echo refused", "refused"},
		{"the clock", "date -s @0 >/dev/null 2>&1 || echo refused", "refused"},
		{"the kernel's log", "dmesg >/dev/null 2>&1; [ -e /dev/kmsg ] || echo none", "none"},
		{"the machine's mounts", "grep -c . /proc/self/mountinfo | awk '{print ($1 < 30)}'", "1"},
		{"the full proc is root's", "runuser -u nobody -- ls /run/lab 2>/dev/null || echo refused", "refused"},
		{"a command has no more than systemd", "diff <(grep CapBnd /proc/1/status) <(grep CapBnd /proc/self/status) && echo same", "same"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr, _ := l.Exec(t, "bash", "-c", c.command)
			if got := strings.TrimSpace(stdout); got != c.want {
				t.Errorf("got %q, want %q; on standard error: %s", got, c.want, stderr)
			}
		})
	}
}

// Landlock is told by its effect, on a thread that is given up afterwards.
func TestLandlockHoldsInALab(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	err := l.In(func() error {
		if _, err := os.ReadFile("/etc/passwd"); err != nil {
			return err
		}
		attr := struct{ fs uint64 }{unix.LANDLOCK_ACCESS_FS_READ_FILE}
		ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
		if errno != 0 {
			return errno
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
		if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
			return errno
		}
		_, err := os.ReadFile("/etc/passwd")
		return err
	})
	if !errors.Is(err, os.ErrPermission) {
		t.Errorf("reading what no rule grants answers %v", err)
	}
}

func TestFilesSurviveDownAndEndWithReset(t *testing.T) {
	l := labtest.New(t)
	ctx := context.Background()
	files := []string{"/etc/kept", "/srv/kept", "/home/kept", "/data/kept", "/var/tmp/kept"}
	for _, file := range files {
		l.WriteFile(t, file, file, 0o640)
	}
	before := l.Snapshot(t, append(files, "/etc/machine-id", "/etc/hosts")...)
	if changed, err := l.Down(ctx); err != nil || !changed {
		t.Fatalf("down: %t, %v", changed, err)
	}
	if changed, err := l.Down(ctx); err != nil || changed {
		t.Errorf("down again: %t, %v", changed, err)
	}
	if err := l.Start(exec.Command("true"), "root"); !errors.Is(err, lab.ErrNotUp) || lab.ExitCode(err) != 125 {
		t.Errorf("a command in a lab that is down: %v", err)
	}
	if _, err := l.Up(ctx, options()); err != nil {
		t.Fatal(err)
	}
	if diff := before.DiffTimes(l.Snapshot(t, append(files, "/etc/machine-id", "/etc/hosts")...)); len(diff) > 0 {
		t.Errorf("changed by down and up: %q", diff)
	}
	// Files that may not be removed are no hindrance.
	l.MustExec(t, "chattr", "+i", "/etc/kept", "/srv/kept")
	l.MustExec(t, "chattr", "+a", "/home/kept")
	if changed, err := l.Reset(ctx); err != nil || !changed {
		t.Fatalf("reset: %t, %v", changed, err)
	}
	if changed, err := l.Reset(ctx); err != nil || changed {
		t.Errorf("reset again: %t, %v", changed, err)
	}
	if _, err := l.Up(ctx, options()); err != nil {
		t.Fatal(err)
	}
	if left := l.Snapshot(t, files...); len(left) > 0 {
		t.Errorf("left over by reset: %v", left)
	}
}

func TestSeveralLabsAtOnce(t *testing.T) {
	for _, which := range []string{"first", "second", "third"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			l := labtest.New(t)
			if got := l.MustExec(t, "hostname"); got != l.Name {
				t.Errorf("lab %s answers as %s", l.Name, got)
			}
		})
	}
}

// Two runs of up on one lab: one boots it, the other finds it up.
func TestUpTwiceAtOnce(t *testing.T) {
	l := labtest.New(t)
	if _, err := l.Down(context.Background()); err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := l.Up(context.Background(), options())
			results <- err
		}()
	}
	if err := errors.Join(<-results, <-results); err != nil {
		t.Error(err)
	}
	if got := l.MustExec(t, "systemctl", "is-system-running"); got != "running" {
		t.Errorf("systemd says %s", got)
	}
}

func TestUpNamesTheUnitsThatFailed(t *testing.T) {
	l := labtest.New(t)
	l.WriteFile(t, "/etc/systemd/system/broken.service", "[Service]\nExecStart=/bin/false\n[Install]\nWantedBy=multi-user.target\n", 0o644)
	l.MustExec(t, "systemctl", "enable", "broken")
	if _, err := l.Down(context.Background()); err != nil {
		t.Fatal(err)
	}
	if failed, err := l.Up(context.Background(), options()); err != nil || !slices.Equal(failed, []string{"broken.service"}) {
		t.Errorf("failed units %q, %v", failed, err)
	}
}

// A person's umask is not the lab's.
func TestAClosedUmaskMakesTheSameLab(t *testing.T) {
	name := strings.TrimSuffix(labtest.Shared(t, labtest.Reference()).Name, "-1") + "-umask"
	l, err := lab.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := lab.DefaultStore()
	said, err := exec.Command("sh", "-c", `umask 077; exec "$0" "$@"`, self, "up", s.Cache, s.Labs, name).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	t.Cleanup(func() {
		if _, err := l.Reset(context.Background()); err != nil {
			t.Error(err)
		}
	})
	roots := []string{"/srv", "/dev", "/home", "/data"}
	closed := (&labtest.Lab{Lab: l}).Snapshot(t, roots...)
	open := labtest.New(t, labtest.Reference()).Snapshot(t, roots...)
	if diff := open.Diff(closed); len(diff) > 0 {
		t.Errorf("with umask 077: %q", diff)
	}
}

// A container's root is an overlay, which cannot carry another.
func TestACopyWhereTheMachineIsAnOverlay(t *testing.T) {
	labtest.Shared(t, labtest.Reference()) // so that the root file system is there
	name := strings.TrimSuffix(filepath.Base(labtest.Shared(t).Dir()), "-1") + "-overlay"
	cmd := exec.Command("/proc/self/exe", "on-overlay", t.TempDir(), lab.DefaultStore().Cache, name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	said, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "machine overlay: true, layers in the lab's folder: true") {
		t.Errorf("%v\n%s", err, said)
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"", "-a", "a-", "A", "a/b", "..", "a b", "1", strings.Repeat("a", 41)} {
		if _, err := lab.Find(name); report.CodeOf(err) != report.ExitUsage {
			t.Errorf("lab name %q: %v", name, err)
		}
	}
}

func TestMissingPrograms(t *testing.T) {
	l, err := lab.Store{Cache: t.TempDir(), Labs: t.TempDir()}.Lab("missing")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	_, err = l.Up(context.Background(), options())
	if report.CodeOf(err) != report.ExitState || !strings.Contains(err.Error(), "apt-get install mmdebstrap") {
		t.Errorf("without mmdebstrap: %v", err)
	}
}
