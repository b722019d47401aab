package launcher

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// launchInNamespace starts this program again in a user namespace of its own,
// where it may make mounts, and stands by until the command there has ended. A
// Go program has several threads, and the kernel gives such a program no user
// namespace in place.
//
// The copy inside gets the policy and what only the one outside can see: which
// links on the way to a grant belong to root or to the launcher's owner.
func launchInNamespace(cmd command, env []string, self identity, conf config) (int, error) {
	fd, err := writeHandover(conf, trustedLinks(self, conf, env))
	if err != nil {
		return 0, err
	}
	// From here on: a stop must find the command, not only this process.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGCONT)
	argv := append([]string{cmd.self, namespacedFlag, "--config", handoverPath, "--"}, cmd.argv...)
	pid, err := syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
		Env:   env,
		Files: []uintptr{0, 1, 2, uintptr(fd)},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: int(self.own.uid), HostID: int(self.own.uid), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: int(self.own.gid), HostID: int(self.own.gid), Size: 1}},
			AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP},
			// The command dies with this process. The kernel watches the
			// thread that forked: ours is the first, and locked (S19).
			Pdeathsig: syscall.SIGKILL,
		},
	})
	if err != nil {
		return 0, namespaceError("user namespace", err)
	}
	unix.Close(fd)
	go forward(signals, pid)
	return wait(pid)
}

// forward passes signals on to the command. What a terminal sends reaches the
// command by itself where there is a terminal, since it is in the same process
// group; it must not end this process before the command has ended.
func forward(signals <-chan os.Signal, pid int) {
	for s := range signals {
		if (s == unix.SIGINT || s == unix.SIGQUIT) && hasTerminal() {
			continue
		}
		// The only error is that the command has just ended.
		_ = unix.Kill(pid, s.(syscall.Signal))
	}
}

func hasTerminal() bool {
	tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err == nil {
		unix.Close(tty)
	}
	return err == nil
}

// wait ends as the command ends: with its exit code, or by its signal.
func wait(pid int) (int, error) {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("wait for the command: %w", err)
		}
		break
	}
	if !status.Signaled() {
		return status.ExitStatus(), nil
	}
	sig := status.Signal()
	// No core of this process: the command's own is the one that tells.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	// The default action, behind the back of the Go runtime, which would print
	// its own state at a SIGSEGV. Nothing but it can fail here.
	var byDefault [4]uint64
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	_ = unix.Kill(unix.Getpid(), sig)
	return 128 + int(sig), nil
}

// trustedLinks walks the policy's grants where owners can be told apart, and
// returns the links that may be followed. Errors are left to the launcher
// inside, which walks them again.
func trustedLinks(self identity, conf config, env []string) []linkID {
	open := opener{follow: self.linkRule(nil), own: self.own}
	extra, _ := extraSystemPaths(env)
	var ids []linkID
	for _, names := range [][]string{
		conf.policy.ReadPaths, conf.policy.WritePaths, conf.policy.ListPaths, {conf.policy.WorkDir},
		extra, programFolders[:], etcLinks[:],
	} {
		for _, name := range names {
			found, links, err := open.open(name)
			if err == nil {
				unix.Close(found.fd)
			}
			for _, l := range links {
				ids = append(ids, l.id)
				unix.Close(l.fd)
			}
		}
	}
	return ids
}

func writeHandover(conf config, links []linkID) (int, error) {
	text, err := json.Marshal(handover{Policy: conf.text, Links: links})
	if err != nil {
		return -1, fmt.Errorf("handover: %w", err)
	}
	fd, err := unix.MemfdCreate("policy", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("handover: %w", err)
	}
	for len(text) > 0 {
		n, err := unix.Write(fd, text)
		if err != nil {
			return -1, fmt.Errorf("handover: %w", err)
		}
		text = text[n:]
	}
	return fd, nil
}
