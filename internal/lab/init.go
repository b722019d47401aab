package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// boot is what the first process is told. All paths are the machine's.
type boot struct {
	Name  string            `json:"name"`
	Lower string            `json:"lower"` // "" where Root holds an unpacked copy
	Upper string            `json:"upper"`
	Work  string            `json:"work"`
	Root  string            `json:"root"`
	Plain map[string]string `json:"plain"` // folder in the lab: folder of the machine
}

// boot returns the orders for the lab's first process.
func (l *Lab) boot(r record) boot {
	b := boot{Name: l.Name, Upper: l.path("upper"), Work: l.path("work"), Root: l.path("root"), Plain: map[string]string{}}
	if !r.Copied {
		b.Lower = filepath.Join(l.store.Cache, r.RootFS)
	}
	for _, folder := range plainFolders() {
		b.Plain[folder] = l.plain(folder)
	}
	return b
}

// The descriptors and the answer between Up and Init.
const (
	orderFD  = 3
	answerFD = 4
	answerOK = "ok"
)

// Init is the lab's first process until it becomes systemd: it reads its orders,
// builds the lab's root in its own namespaces, moves into it and executes. It
// returns only when that failed; the reason has been told to Up.
func Init() error {
	// The cgroup namespace is the thread's until exec.
	runtime.LockOSThread()
	answer := os.NewFile(answerFD, "answer")
	unix.CloseOnExec(answerFD)
	var b boot
	if err := json.NewDecoder(os.NewFile(orderFD, "orders")).Decode(&b); err != nil {
		return fmt.Errorf("no orders: %w", err) // whoever started us is gone
	}
	err := b.run(func() error {
		_, err := answer.WriteString(answerOK)
		return err
	})
	_, _ = answer.WriteString(strings.ReplaceAll(err.Error(), "\n", "; "))
	return err
}

// run does the whole of it; ready is called last, before exec.
func (b boot) run(ready func() error) error {
	// Nothing the caller left open may live on in the lab.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close what was left open: %w", err)
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"take a cgroup namespace", func() error { return unix.Unshare(unix.CLONE_NEWCGROUP) }},
		{"keep mounts from the machine", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount the root", b.mountRoot},
		{"mount the kernel's file systems", b.mountKernel},
		{"make /dev", b.makeDev},
		{"set the host name", func() error { return unix.Sethostname([]byte(b.Name)) }},
		{"move into the root", b.pivot},
		{"name the host in its files", b.nameHost},
		{"forget the login", forgetLogin},
		{"drop capabilities", dropCapabilities},
		{"tell that all is set", ready},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	const systemd = "/lib/systemd/systemd"
	env := []string{"container=agentworks", "PATH=" + searchPath, "LANG=C.UTF-8"}
	err := unix.Exec(systemd, []string{systemd, "--system"}, env)
	return fmt.Errorf("execute %s: %w", systemd, err)
}

func (b boot) in(path string) string { return filepath.Join(b.Root, path) }

func (b boot) mountRoot() error {
	if b.Lower == "" {
		// pivot_root wants a mount.
		if err := unix.Mount(b.Root, b.Root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", b.Root, err)
		}
	} else {
		layers := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", b.Lower, b.Upper, b.Work)
		if err := unix.Mount("overlay", b.Root, "overlay", 0, layers); err != nil {
			return fmt.Errorf("mount an overlay on %s: %w", b.Root, err)
		}
	}
	for folder, source := range b.Plain {
		target := b.in(folder)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", target, err)
		}
	}
	return nil
}

// mountKernel mounts proc, sysfs, the lab's own part of the cgroup tree and /run.
func (b boot) mountKernel() error {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := mountAll([]mountPoint{
		{b.in("proc"), "proc", quiet, ""},
		{b.in("sys"), "sysfs", quiet, ""},
		{b.in("run"), "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
	}); err != nil {
		return err
	}
	// Settings below /proc/sys are the machine's; systemd-sysctl would write them.
	for _, path := range []string{b.in("proc/sys"), b.in("proc/sysrq-trigger"), b.in("sys")} {
		// Not every kernel has the magic key.
		if err := bindReadOnly(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	// A user namespace may mount a new proc or sysfs only where a complete one is
	// visible, and those above are partly covered. Only root may come here.
	full := b.in("run/lab")
	for _, dir := range []string{full, full + "/proc", full + "/sys"} {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o700)); err != nil {
			return err
		}
	}
	return mountAll([]mountPoint{
		{full + "/proc", "proc", quiet, ""},
		{full + "/sys", "sysfs", quiet, ""},
		{b.in("sys/fs/cgroup"), "cgroup2", quiet, ""},
	})
}

// bindReadOnly makes path read-only for this mount namespace alone.
func bindReadOnly(path string) error {
	if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", path, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
	}
	return nil
}

type mountPoint struct {
	target, fstype string
	flags          uintptr
	data           string
}

func mountAll(points []mountPoint) error {
	for _, p := range points {
		if err := unix.Mount(p.fstype, p.target, p.fstype, p.flags, p.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", p.fstype, p.target, err)
		}
	}
	return nil
}

// makeDev fills /dev with the nodes every program expects and none of the
// machine's disks or terminals.
func (b boot) makeDev() error {
	dev := b.in("dev")
	if err := mountAll([]mountPoint{{dev, "tmpfs", unix.MS_NOSUID, "mode=755,size=1m"}}); err != nil {
		return err
	}
	const ttyGroup = 5 // Debian's static id of group tty
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		if err := makeNode(filepath.Join(dev, name), unix.Mkdev(1, minor), 0); err != nil {
			return err
		}
	}
	if err := makeNode(filepath.Join(dev, "tty"), unix.Mkdev(5, 0), ttyGroup); err != nil {
		return err
	}
	for link, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, filepath.Join(dev, link)); err != nil {
			return err
		}
	}
	for _, dir := range []string{"pts", "shm"} {
		if err := os.Mkdir(filepath.Join(dev, dir), 0o755); err != nil {
			return err
		}
	}
	return mountAll([]mountPoint{
		{filepath.Join(dev, "pts"), "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, fmt.Sprintf("newinstance,ptmxmode=0666,mode=620,gid=%d", ttyGroup)},
		{filepath.Join(dev, "shm"), "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	})
}

func makeNode(path string, device uint64, gid int) error {
	err := unix.Mknod(path, unix.S_IFCHR|0o666, int(device))
	if err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	return errors.Join(os.Chmod(path, 0o666), os.Chown(path, 0, gid))
}

// pivot makes the lab's root the only file system there is.
func (b boot) pivot() error {
	if err := unix.Chdir(b.Root); err != nil {
		return err
	}
	// Both on the same folder: the old root then lies over the new one and is
	// taken away, and no folder for it is needed in the lab.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the machine's root: %w", err)
	}
	return unix.Chdir("/")
}

// nameHost writes hostname and hosts at the first start; sudo complains at every
// call about a host name that resolves to nothing. It runs inside the lab, so
// links in the lab's files lead nowhere else.
func (b boot) nameHost() error {
	if text, err := os.ReadFile("/etc/hostname"); err == nil && string(text) == b.Name+"\n" {
		return nil
	}
	for _, file := range []struct{ path, text string }{
		{"/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 " + b.Name + "\n"},
		{"/etc/hostname", b.Name + "\n"},
	} {
		if err := errors.Join(os.WriteFile(file.path, []byte(file.text), 0o644), os.Chmod(file.path, 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// forgetLogin unsets the audit login of whoever typed lab up, for the calling
// thread, which executes systemd; logins in the lab could not set theirs
// otherwise. A kernel without audit has no such file.
func forgetLogin() error {
	err := os.WriteFile("/proc/thread-self/loginuid", []byte("4294967295"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
