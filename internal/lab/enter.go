package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// searchPath is PATH of what enters a lab, and where bare names are looked up.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Start starts cmd inside the lab as the account user, as cmd.Start does outside;
// the caller waits with cmd.Wait. A bare program name is looked up in the lab.
// Env is added to the account's own, an empty Dir is /. The error wraps ErrNotUp when
// the lab is down, and is what exec answered (fs.ErrNotExist, fs.ErrPermission)
// for a program that cannot be run.
func (l *Lab) Start(cmd *exec.Cmd, user string) error {
	group, closeGroup, err := l.execGroup()
	if err != nil {
		return err
	}
	defer closeGroup()
	return l.In(func() error {
		who, err := readAccount("/etc", user)
		if err != nil {
			return fmt.Errorf("lab %s: %w", l.Name, err)
		}
		if err := place(cmd); err != nil {
			return err
		}
		cmd.Env = append(who.environment(), cmd.Env...)
		if cmd.Dir == "" {
			cmd.Dir = "/"
		}
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = new(syscall.SysProcAttr)
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, group
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: who.uid, Gid: who.gid, Groups: who.groups}
		// The bounding set belongs to the thread and is handed down by fork.
		if err := dropCapabilities(); err != nil {
			return err
		}
		return cmd.Start()
	})
}

// ExitCode is the exit code for what Start or cmd.Wait answered: the program's
// own, 128+n where signal n ended it, 127 for a program that does not exist, 126
// for one that may not be executed, 125 for everything else.
func ExitCode(err error) int {
	var exit *exec.ExitError
	var name *exec.Error
	var path *fs.PathError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal())
		}
		return exit.ExitCode()
	case errors.As(err, &name), errors.As(err, &path) && path.Op == "fork/exec":
		if errors.Is(err, fs.ErrNotExist) {
			return 127
		}
		return 126
	}
	return 125
}

// In calls f on a thread of its own that sees the lab's file systems, network and
// host name instead of the machine's. f must do its work on the goroutine it is
// called on and may end it only by returning.
func (l *Lab) In(f func() error) error {
	p, err := l.process()
	if err != nil {
		return err
	}
	defer p.Close()
	// Until then it still stands in the machine's root.
	if !p.isSystemd() {
		return fmt.Errorf("lab %s is still starting: %w", l.Name, ErrNotUp)
	}
	spaces := unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP
	mount, err := cgroup2()
	if err != nil {
		return err
	}
	if strict, err := delegates(mount); err != nil {
		return err
	} else if strict {
		// Nothing could be started in the lab's cgroup from within its cgroup
		// namespace; being in the group matters more than seeing it as the root.
		spaces &^= unix.CLONE_NEWCGROUP
	}
	return onLostThread(func() error {
		// Threads share root and working directory unless told otherwise.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("enter lab %s: unshare: %w", l.Name, err)
		}
		if err := unix.Setns(p.fd, spaces); err != nil {
			return fmt.Errorf("enter lab %s: setns: %w", l.Name, err)
		}
		return f()
	})
}

// onLostThread calls f on a thread that ends afterwards, whatever f did to it.
// The main thread cannot end, and the process is seen through it, so it is never
// the one.
func onLostThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			done <- onLostThread(f) // on another thread, since this one is held
			runtime.UnlockOSThread()
			return
		}
		done <- f()
	}()
	return <-done
}

// execGroup opens the cgroup of commands that enter the lab.
func (l *Lab) execGroup() (fd int, closeFile func() error, err error) {
	top, err := l.cgroup()
	if err != nil {
		return 0, nil, err
	}
	path := filepath.Join(top, execGroup)
	err = os.Mkdir(path, 0o755)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil, fmt.Errorf("lab %s is %w", l.Name, ErrNotUp)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return 0, nil, fmt.Errorf("make the cgroup for commands in lab %s: %w", l.Name, err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return 0, nil, err
	}
	return int(dir.Fd()), dir.Close, nil
}

// place finds cmd's program in the file system of the calling thread.
func place(cmd *exec.Cmd) error {
	name := cmd.Args[0]
	if strings.Contains(name, "/") {
		return nil
	}
	for _, dir := range strings.Split(searchPath, ":") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			cmd.Path, cmd.Err = path, nil
			return nil
		}
	}
	return &exec.Error{Name: name, Err: os.ErrNotExist}
}
