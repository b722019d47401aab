package slots

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopGrace is how long a stopped command has between TERM and KILL, and
// stopLimit how long slotctl then waits for what cannot be killed.
const (
	stopGrace = 2 * time.Second
	stopLimit = 5 * time.Second
)

// child is a program ready to start.
type child struct {
	argv, env []string
	files     []uintptr // descriptors 0, 1, 2 and perhaps 3
	userns    bool
	uid, gid  int
	processes uint64 // of the account, at most; see limited
}

// start starts the program in a process group of its own. Its death signal is
// KILL, which the kernel sends when the thread that forked ends, so the caller
// holds its thread (case S19). With userns it gets a user and a mount namespace
// in which it is itself, and there CAP_SYS_ADMIN for the launcher's mounts and
// CAP_SETPCAP, without which the launcher could not empty the bounding set.
func (c *child) start() (pid int, err error) {
	sys := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.userns {
		sys.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: c.uid, HostID: c.uid, Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: c.gid, HostID: c.gid, Size: 1}}
		sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP}
	}
	err = limited(c.processes, func() error {
		pid, err = syscall.ForkExec(c.argv[0], c.argv, &syscall.ProcAttr{Env: c.env, Files: c.files, Sys: sys})
		return err
	})
	return pid, err
}

// limited runs start under a bound on how many processes and threads this
// account has in all, and takes the bound away again, since slotctl's own
// threads count too. What start begins keeps it: the soft limit, and in a user
// namespace also the bound of that namespace, which the kernel takes from the
// soft limit of whoever makes it and which nobody inside can raise. An account
// that has a lower limit already keeps that.
func limited(processes uint64, start func() error) error {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &was); err != nil {
		return fmt.Errorf("read the limit of processes: %w", err)
	}
	if was.Cur <= processes {
		return start()
	}
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: min(processes, was.Max), Max: was.Max}); err != nil {
		return fmt.Errorf("limit processes: %w", err)
	}
	// Raising the soft limit again needs no right.
	return errors.Join(start(), unix.Setrlimit(unix.RLIMIT_NPROC, &was))
}

// runner starts one program and stays with it to its end. One goroutine starts,
// signals and reaps, so a process group is signalled only while its leader is
// not reaped (case S25).
type runner struct {
	table   processTable
	changes chan os.Signal // SIGCHLD
	stops   chan os.Signal // TERM, INT, HUP
}

func newRunner(table processTable) *runner {
	r := &runner{table: table, changes: make(chan os.Signal, 1), stops: make(chan os.Signal, 1)}
	signal.Notify(r.changes, unix.SIGCHLD)
	signal.Notify(r.stops, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	return r
}

// wait returns the exit code of the leader pid. A normal end leaves background
// jobs alone; after a stop it waits until every descendant is gone.
func (r *runner) wait(pid int) int {
	code, running, stopping := 0, true, false
	var killAt, giveUp <-chan time.Time
	for {
		select {
		case <-r.changes:
			for {
				var ws unix.WaitStatus
				got, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
				if errors.Is(err, unix.EINTR) {
					continue
				}
				if err != nil && stopping { // ECHILD: nothing stems from us any more
					return code
				}
				if err != nil || got == 0 {
					break
				}
				if got == pid {
					code, running = exitCode(ws), false
				}
			}
			if !running && !stopping {
				return code
			}
		case <-r.stops:
			if stopping {
				continue
			}
			stopping = true
			killAt, giveUp = time.After(stopGrace), time.After(stopGrace+stopLimit)
			if running {
				_ = unix.Kill(-pid, unix.SIGTERM) // gone already: the reaping tells
			}
		case <-killAt:
			r.killDescendants()
			killAt = time.After(50 * time.Millisecond) // again, until there is none
		case <-giveUp:
			if running {
				return 128 + int(unix.SIGKILL)
			}
			return code
		}
	}
}

// killDescendants stops every descendant, so that none forks away or reaps
// another, and then kills them. Who stems from slotctl counts, never the uid:
// the user's other commands run under it.
func (r *runner) killDescendants() {
	all, err := r.table.descendants(os.Getpid())
	if err != nil {
		return // tried again until the limit
	}
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
		for _, p := range all {
			_ = r.table.signal(p, sig) // gone is as good as killed
		}
	}
}

func exitCode(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// sealed puts text into a memory file that nobody can change any more, so that
// a policy never lies in a file system.
func sealed(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("fd3", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make a memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "fd3")
	_, err = f.WriteString(text)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS,
			unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("fill a memory file: %w", err)
	}
	return f, nil
}
