package landlock

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Probe asks the running kernel for its ABI. The error says why there is none:
// a kernel without Landlock, or one that was booted with it off.
func Probe() (ABI, error) {
	version, errno := createRuleset(nil, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
		return ABI(version), nil
	case unix.ENOSYS:
		return 0, fmt.Errorf("this kernel has no Landlock (Linux 6.2 or newer is needed): %w", errno)
	case unix.EOPNOTSUPP:
		return 0, fmt.Errorf("this kernel's Landlock is off (add landlock to its lsm= parameter): %w", errno)
	default:
		return 0, fmt.Errorf("ask for the Landlock ABI: %w", errno)
	}
}

// Errata asks which known faults of Landlock the running kernel has mended, as
// a bit set (bit n-1 is erratum n). A kernel that does not know the question
// answers none.
func Errata() (uint32, error) {
	bits, errno := createRuleset(nil, unix.LANDLOCK_CREATE_RULESET_ERRATA)
	switch errno {
	case 0:
		return uint32(bits), nil
	case unix.EINVAL:
		return 0, nil
	default:
		return 0, fmt.Errorf("ask for the Landlock errata: %w", errno)
	}
}

// Ruleset is a set of rules that is not in force yet. Its descriptor closes on
// exec.
type Ruleset struct {
	fd    int
	abi   ABI
	rules int
}

// Create makes an empty ruleset that handles all this ABI can hold back.
func Create(abi ABI) (*Ruleset, error) {
	abi = min(abi, Newest)
	attr := unix.LandlockRulesetAttr{Handled_access_fs: abi.FS(), Scoped: abi.Scopes()}
	fd, errno := createRuleset(&attr, 0)
	if errno != 0 {
		return nil, fmt.Errorf("create a Landlock ruleset for ABI %d: %w", abi, errno)
	}
	return &Ruleset{fd: fd, abi: abi}, nil
}

// Allow gives rights, cut to the ABI and the file's type, on what fd stands for
// and, where that is a folder, on everything below it. mode is its st_mode.
func (r *Ruleset) Allow(fd int, mode uint32, rights uint64) error {
	allowed := r.abi.RightsFor(rights, mode)
	if allowed == 0 {
		return nil // list rights on a file: the kernel refuses an empty rule
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: allowed, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("add a Landlock rule: %w", errno)
	}
	r.rules++
	return nil
}

// Restrict puts the ruleset in force for the calling thread, for good. The
// thread must have no_new_privs set and be the one that execs. A ruleset
// without a rule is refused: nothing could run under it, so it is a mistake
// (S38).
func (r *Ruleset) Restrict() error {
	if r.rules == 0 {
		return errors.New("the Landlock ruleset has no rule")
	}
	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(r.fd), 0, 0)
	switch errno {
	case 0:
		return nil
	case unix.E2BIG:
		return fmt.Errorf("restrict: too many sandboxes inside one another: %w", errno)
	default:
		return fmt.Errorf("restrict: %w", errno)
	}
}

// createRuleset is landlock_create_ruleset(2): with a nil attr a question.
func createRuleset(attr *unix.LandlockRulesetAttr, flags uintptr) (int, unix.Errno) {
	var size uintptr
	if attr != nil {
		size = unsafe.Sizeof(*attr)
	}
	value, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(attr)), size, flags)
	return int(value), errno
}
