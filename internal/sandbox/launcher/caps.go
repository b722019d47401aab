package launcher

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

func capBit(c int) uint64 { return 1 << uint(c) }

// capabilities reads the calling thread's permitted and effective sets.
func capabilities() (permitted, effective uint64, err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, 0, fmt.Errorf("read capabilities: %w", err)
	}
	permitted = uint64(data[1].Permitted)<<32 | uint64(data[0].Permitted)
	effective = uint64(data[1].Effective)<<32 | uint64(data[0].Effective)
	return permitted, effective, nil
}

// dropCapabilities empties the calling thread's ambient, bounding, inheritable,
// permitted and effective sets. The bounding set needs CAP_SETPCAP: a launcher
// that needs no mount, and so has no namespace, leaves it as it is, and
// no_new_privs keeps it without effect.
func dropCapabilities(bounding bool) error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}
	if bounding {
		// The kernel ends the list with EINVAL: it may know capabilities
		// that this program does not.
		for c := uintptr(0); ; c++ {
			err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
			if errors.Is(err, unix.EINVAL) && c > 0 {
				break
			}
			if err != nil {
				return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
			}
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("clear capabilities: %w", err)
	}
	return nil
}
