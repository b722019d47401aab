// Package landlock is the kernel's Landlock interface: the three system calls,
// and what each version of the interface (its ABI) can and cannot hold back.
// The ABI is a value, so that a test on one kernel can speak for all. The
// package imports the standard library and x/sys alone; it must never know a
// policy, print anything, or decide what a command may reach.
//
// Source: landlock(7), landlock_create_ruleset(2) and the kernel's
// userspace-api/landlock.
package landlock

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// ABI is a version of the kernel's Landlock interface, 1 and up.
type ABI int

// The ABI versions that this package knows apart. A newer kernel is asked for
// what Newest offers.
const (
	// Least is the first ABI under which a file granted for reading stays as it
	// is: before it, truncation cannot be held back.
	Least  ABI = 3
	Newest ABI = 9
)

// Rights on files, as the bits of a ruleset. The groups are what a grant is
// made of; RightsFor cuts them to an ABI and a file type.
const (
	List  = unix.LANDLOCK_ACCESS_FS_READ_DIR
	Facts = List | unix.LANDLOCK_ACCESS_FS_READ_FILE
	Read  = Facts | unix.LANDLOCK_ACCESS_FS_EXECUTE
	// Device is for the basic nodes in /dev; Terminal adds the ioctls without
	// which a terminal is of no use.
	Device   = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	Terminal = Device | List | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	Write    = Read | fsABI1 | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV | unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
)

// The thirteen rights that ABI 1 began with.
const fsABI1 = unix.LANDLOCK_ACCESS_FS_EXECUTE |
	unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_READ_FILE |
	unix.LANDLOCK_ACCESS_FS_READ_DIR |
	unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
	unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
	unix.LANDLOCK_ACCESS_FS_MAKE_CHAR |
	unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
	unix.LANDLOCK_ACCESS_FS_MAKE_REG |
	unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
	unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
	unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
	unix.LANDLOCK_ACCESS_FS_MAKE_SYM

// fileRights are those that mean something on what is no folder. The kernel
// answers EINVAL to a rule that gives any other to a file (case S37).
const fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE |
	unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_READ_FILE |
	unix.LANDLOCK_ACCESS_FS_TRUNCATE |
	unix.LANDLOCK_ACCESS_FS_IOCTL_DEV |
	unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX

// FS returns the file rights that a ruleset handles under this ABI: whatever
// is handled is denied unless a rule gives it. All that the kernel can hold
// back is held back.
func (a ABI) FS() uint64 {
	if a < 1 {
		return 0
	}
	rights := uint64(fsABI1)
	if a >= 2 {
		rights |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if a >= 3 {
		rights |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if a >= 5 {
		rights |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if a >= 9 {
		rights |= unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	}
	return rights
}

// Scopes returns what a command may not do to processes outside its sandbox
// under this ABI: connect to their abstract sockets, send them signals (S44).
func (a ABI) Scopes() uint64 {
	if a < 6 {
		return 0
	}
	return unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
}

// RightsFor cuts rights to what this ABI handles and what a file of the given
// type can have. mode is st_mode as stat gives it.
func (a ABI) RightsFor(rights uint64, mode uint32) uint64 {
	rights &= a.FS()
	if mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	return rights
}

// Check says whether a sandbox under this ABI deserves the name.
func (a ABI) Check() error {
	if a >= Least {
		return nil
	}
	return fmt.Errorf("the kernel's Landlock ABI is %d; at least %d (Linux 6.2) is needed: %s",
		a, Least, strings.Join(a.Gaps()[:Least-max(a, 1)], "; "))
}

// Gaps lists what this ABI cannot hold back, oldest addition first, for a
// report: nothing under Newest.
func (a ABI) Gaps() []string {
	additions := []struct {
		since ABI
		gap   string
	}{
		{2, "files cannot be renamed or linked between folders"},
		{3, "a file granted for reading can be truncated"},
		{5, "ioctls on devices are not controlled"},
		{6, "signals and abstract sockets reach other processes of the account"},
		{9, "any socket path that the account can reach can be connected to"},
	}
	var gaps []string
	for _, addition := range additions {
		if a < addition.since {
			gaps = append(gaps, addition.gap)
		}
	}
	return gaps
}
