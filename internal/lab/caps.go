package lab

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// keptCapabilities are those of an ordinary system container with a network
// of its own. Left out is what reaches the machine's kernel or hardware: modules,
// clocks, raw input and output, device nodes, kernel log, tracing, BPF.
func keptCapabilities() []int {
	return []int{
		unix.CAP_AUDIT_CONTROL, unix.CAP_AUDIT_WRITE, unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE,
		unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_IPC_OWNER,
		unix.CAP_KILL, unix.CAP_LEASE, unix.CAP_LINUX_IMMUTABLE, unix.CAP_NET_ADMIN,
		unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_BROADCAST, unix.CAP_NET_RAW, unix.CAP_SETFCAP,
		unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_SETUID, unix.CAP_SYS_ADMIN, unix.CAP_SYS_BOOT,
		unix.CAP_SYS_CHROOT, unix.CAP_SYS_NICE, unix.CAP_SYS_PTRACE, unix.CAP_SYS_RESOURCE,
		unix.CAP_SYS_TTY_CONFIG,
	}
}

// dropCapabilities bounds what the calling thread's programs can ever hold. A
// program that root starts gets the whole bounding set.
func dropCapabilities() error {
	kept := keptCapabilities()
	for c := 0; ; c++ {
		if slices.Contains(kept, c) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // the kernel knows no more
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	// Inheritable capabilities would come back in spite of the bounding set.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the capabilities: %w", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("clear the inheritable capabilities: %w", err)
	}
	return nil
}
