package slots

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Accounts holds what slotctl needs of the account files.
type Accounts struct {
	users  []user
	groups map[int]string // gid → name
}

type user struct {
	name     string
	uid, gid int
}

// ReadAccounts reads the files passwd and group (/etc/passwd, /etc/group). Slots
// are accounts of the host itself, so no directory service is asked.
func ReadAccounts(passwd, group string) (*Accounts, error) {
	a := &Accounts{groups: map[int]string{}}
	err := eachRecord(passwd, func(f []string) {
		if len(f) < 4 {
			return
		}
		uid, uerr := strconv.Atoi(f[2])
		gid, gerr := strconv.Atoi(f[3])
		if uerr == nil && gerr == nil {
			a.users = append(a.users, user{name: f[0], uid: uid, gid: gid})
		}
	})
	if err != nil {
		return nil, err
	}
	err = eachRecord(group, func(f []string) {
		if len(f) < 3 {
			return
		}
		if gid, err := strconv.Atoi(f[2]); err == nil && a.groups[gid] == "" {
			a.groups[gid] = f[0]
		}
	})
	return a, err
}

func eachRecord(file string, record func(fields []string)) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read accounts: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		record(strings.Split(strings.TrimRight(line, "\n"), ":"))
	}
	return nil
}

// Identity is who a process is, as the kernel says.
type Identity struct {
	RUID, EUID, SUID int
	RGID, EGID, SGID int
	Groups           []int // supplementary
}

// CurrentIdentity asks the kernel for the identity of this process.
func CurrentIdentity() (Identity, error) {
	var id Identity
	id.RUID, id.EUID, id.SUID = unix.Getresuid()
	id.RGID, id.EGID, id.SGID = unix.Getresgid()
	groups, err := unix.Getgroups()
	if err != nil {
		return id, fmt.Errorf("read supplementary groups: %w", err)
	}
	id.Groups = groups
	return id, nil
}

// SlotOf names the slot that id is, or says why it is none. stateGID is the
// group that owns slot_state_root, which is the service's: `sudo -P` hands the
// caller's groups to the slot, sudoers cannot forbid it, and the service is in
// every slot's group (case U-01).
func (a *Accounts) SlotOf(id Identity, prefix string, stateGID int) (string, error) {
	if id.RUID == 0 || id.EUID == 0 || id.SUID == 0 {
		return "", errors.New("slotctl does not run as root")
	}
	if id.RUID != id.EUID || id.EUID != id.SUID {
		return "", fmt.Errorf("real, effective and saved uid differ (%d, %d, %d)", id.RUID, id.EUID, id.SUID)
	}
	if id.RGID != id.EGID || id.EGID != id.SGID {
		return "", fmt.Errorf("real, effective and saved gid differ (%d, %d, %d)", id.RGID, id.EGID, id.SGID)
	}
	var own user
	for _, u := range a.users {
		if u.uid != id.EUID {
			continue
		}
		if own.name != "" {
			return "", fmt.Errorf("uid %d belongs to both %s and %s", id.EUID, own.name, u.name)
		}
		own = u
	}
	if own.name == "" {
		return "", fmt.Errorf("uid %d has no account", id.EUID)
	}
	if !ValidSlot(prefix, own.name) {
		return "", fmt.Errorf("account %s is no slot of prefix %q", own.name, prefix)
	}
	if id.EGID != own.gid {
		return "", fmt.Errorf("gid %d is not the group of %s", id.EGID, own.name)
	}
	for _, gid := range id.Groups {
		if gid == own.gid {
			continue
		}
		if gid == stateGID {
			return "", fmt.Errorf("the groups of the caller came along: %s is the service's (sudo -P?)", a.groupName(gid))
		}
		if other := a.slotWithGroup(gid, prefix); other != "" {
			return "", fmt.Errorf("the groups of the caller came along: %s is the group of %s (sudo -P?)", a.groupName(gid), other)
		}
	}
	return own.name, nil
}

// slotWithGroup names the slot whose group gid is, by the group's name or as an
// account's primary group.
func (a *Accounts) slotWithGroup(gid int, prefix string) string {
	if name := a.groups[gid]; ValidSlot(prefix, name) {
		return name
	}
	i := slices.IndexFunc(a.users, func(u user) bool { return u.gid == gid && ValidSlot(prefix, u.name) })
	if i < 0 {
		return ""
	}
	return a.users[i].name
}

func (a *Accounts) groupName(gid int) string {
	if name := a.groups[gid]; name != "" {
		return name
	}
	return strconv.Itoa(gid)
}

// groupOwning is the group that owns path.
func groupOwning(path string) (int, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", path, err)
	}
	return int(st.Gid), nil
}
