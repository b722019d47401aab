package launcher

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// roleVariable makes the test binary the program that starts the launcher,
// probeVariable the one that runs inside the sandbox.
const (
	roleVariable  = "LAUNCHER_TEST_ROLE"
	probeVariable = "LAUNCHER_TEST_PROBE"
)

// playRole never returns.
func playRole(role string, words []string) {
	runtime.LockOSThread()
	os.Unsetenv(roleVariable)
	var err error
	switch role {
	case "slotctl":
		err = startInUserNamespace(words, unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP)
	case "slotctl-oldest":
		err = startInUserNamespace(words, unix.CAP_SYS_ADMIN)
	case "seccomp":
		err = startWithFilter(words)
	case "pivot":
		err = startInRoot(words)
	case "probe":
		err = probeOne(words)
	default:
		err = fmt.Errorf("no role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startInUserNamespace is slotctl's part of "userns": the account mapped to
// itself, capabilities ambient, descriptor 3 handed on.
func startInUserNamespace(words []string, caps ...uintptr) error {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if _, err := unix.FcntlInt(3, unix.F_GETFD, 0); err == nil {
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "policy")}
	}
	id := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: id, HostID: id, Size: 1}}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: id(os.Getuid()), GidMappings: id(os.Getgid()),
		AmbientCaps: caps, Pdeathsig: syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = cmd.Wait()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		os.Exit(128 + int(status.Signal()))
	}
	os.Exit(status.ExitStatus())
	return nil
}

// startWithFilter execs its words with one system call answering an error:
// "<number> <errno> program…".
func startWithFilter(words []string) error {
	call, err := strconv.Atoi(words[0])
	if err != nil {
		return err
	}
	errno, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	// Of clone only the call for a user namespace fails: threads are made by it
	// too. Its flags are the first argument, at offset 16.
	flags := uint32(0)
	if call == unix.SYS_CLONE {
		flags = unix.CLONE_NEWUSER
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(call), Jt: 0, Jf: 4},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: flags, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return err
	}
	return unix.Exec(words[2], words[2:], os.Environ())
}

// startInRoot execs its words as the slot with another root folder, as a
// container has one: "<root> program…". (In a mere chroot the kernel gives no
// user namespace.)
func startInRoot(words []string) error {
	top := words[0]
	if err := unix.Mount(top, top, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Chdir(top); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	for _, err := range []error{unix.Setgroups(nil), unix.Setresgid(slotID, slotID, slotID), unix.Setresuid(slotID, slotID, slotID)} {
		if err != nil {
			return err
		}
	}
	return unix.Exec(words[1], words[1:], os.Environ())
}

// probeOne tries one thing inside the sandbox and prints "ok" or the error's
// name.
func probeOne(words []string) error {
	var err error
	switch what, words := words[0], words[1:]; what {
	case "rename":
		err = unix.Rename(words[0], words[1])
	case "exchange":
		err = unix.Renameat2(unix.AT_FDCWD, words[0], unix.AT_FDCWD, words[1], unix.RENAME_EXCHANGE)
	case "link":
		err = unix.Link(words[0], words[1])
	case "unlink":
		err = unix.Unlink(words[0])
	case "mkdir":
		err = unix.Mkdir(words[0], 0o755)
	case "chmod":
		err = unix.Chmod(words[0], 0o600)
	case "chown":
		err = unix.Lchown(words[0], os.Getuid(), os.Getgid())
	case "utimes":
		err = unix.Utimes(words[0], make([]unix.Timeval, 2))
	case "setxattr":
		err = unix.Setxattr(words[0], "user.test", []byte("x"), 0)
	case "truncate":
		err = unix.Truncate(words[0], 0)
	case "create":
		err = open(words[0], unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	case "write":
		err = open(words[0], unix.O_WRONLY)
	case "read":
		err = open(words[0], unix.O_RDONLY)
	case "kill":
		var pid int
		if pid, err = strconv.Atoi(words[0]); err == nil {
			err = unix.Kill(pid, unix.SIGSTOP)
		}
	case "connect":
		var conn net.Conn
		if conn, err = net.Dial("unix", words[0]); err == nil {
			conn.Close()
		}
	case "mount":
		err = unix.Mount("tmpfs", words[0], "tmpfs", 0, "")
	case "fds":
		for fd := range 4096 {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && !runtimeOwned(fd) {
				fmt.Println(fd)
			}
		}
		return nil
	case "exec":
		return unix.Exec(words[0], words, os.Environ())
	default:
		return fmt.Errorf("no probe %q", what)
	}
	var errno syscall.Errno
	switch {
	case err == nil:
		fmt.Println("ok")
	case errors.As(err, &errno):
		fmt.Println(unix.ErrnoName(errno))
	default:
		fmt.Println(err)
	}
	return nil
}

// runtimeOwned says whether a descriptor is the Go runtime's own (epoll).
func runtimeOwned(fd int) bool {
	target, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return strings.HasPrefix(target, "anon_inode:")
}

func open(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o644)
	if err == nil {
		unix.Close(fd)
	}
	return err
}
