package launcher

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// initialUserNS is the inode of the initial user namespace in nsfs: fixed by
// the kernel (USER_NS_INIT_INO).
const initialUserNS = 0xEFFFFFFD

// unmappedID is how a user namespace shows every account that it does not map.
const unmappedID = 65534

// identity is who runs the launcher, and what it may do.
type identity struct {
	own       ownIDs
	owner     uint32 // of the launcher's file, as this namespace shows it
	initialNS bool   // in the initial user namespace
	root      bool   // any of the real, effective and saved uid is 0
	permitted uint64
	effective uint64
}

func lookAtSelf() (identity, error) {
	self := identity{own: ownIDs{uid: uint32(unix.Geteuid()), gid: uint32(unix.Getegid())}}
	real, effective, saved := unix.Getresuid()
	self.root = real == 0 || effective == 0 || saved == 0
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/user", &st); err != nil {
		return self, fmt.Errorf("look at /proc/self/ns/user: %w", err)
	}
	self.initialNS = st.Ino == initialUserNS
	if err := unix.Stat("/proc/self/exe", &st); err != nil {
		return self, fmt.Errorf("look at /proc/self/exe: %w", err)
	}
	self.owner = st.Uid
	var err error
	self.permitted, self.effective, err = capabilities()
	return self, err
}

// mayLaunch refuses whom the launcher could not confine: root, and an account
// that holds the machine's CAP_SYS_ADMIN. A private mount namespace of either
// would be a real one, with the real machine's mounts in reach.
func (id identity) mayLaunch() error {
	if id.root {
		return errors.New("the launcher does not run as root (uid 0)")
	}
	if id.initialNS && (id.permitted|id.effective)&capBit(unix.CAP_SYS_ADMIN) != 0 {
		return errors.New("the launcher does not run with CAP_SYS_ADMIN in the initial user namespace")
	}
	return nil
}

// canMount says whether the launcher stands in a user namespace made for it.
// CAP_SETPCAP belongs to it: without it the bounding set would survive.
func (id identity) canMount() bool {
	return !id.initialNS && id.effective&capBit(unix.CAP_SYS_ADMIN) != 0 && id.canDropBounding()
}

func (id identity) canDropBounding() bool {
	return id.effective&capBit(unix.CAP_SETPCAP) != 0
}

// linkRule decides over a link on the way to a grant: it is followed when root
// or the launcher's owner (the service) owns it. Inside a user namespace all
// accounts but one look alike; there a link of one of them is followed when the
// launcher outside saw whose it is (known), else only where nobody but such an
// owner could have put it.
func (id identity) linkRule(known []linkID) func(link) bool {
	return func(l link) bool {
		if id.initialNS || l.uid != unmappedID {
			return l.uid == 0 || l.uid == id.owner
		}
		return l.closed || slices.Contains(known, l.id)
	}
}
