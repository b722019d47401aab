package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// account is what the lab's own account files say of a user. The machine's
// libraries would answer from the machine's files, or from a cache of them.
type account struct {
	name, home, shell string
	uid, gid          uint32
	groups            []uint32 // all of them, gid among them
}

var errNoAccount = errors.New("no such account")

// readAccount reads passwd and group below etc.
func readAccount(etc, name string) (account, error) {
	passwd, err := os.ReadFile(filepath.Join(etc, "passwd"))
	if err != nil {
		return account{}, err
	}
	group, err := os.ReadFile(filepath.Join(etc, "group"))
	if err != nil {
		return account{}, err
	}
	return parseAccount(string(passwd), string(group), name)
}

func parseAccount(passwd, group, name string) (account, error) {
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 7 || f[0] != name {
			continue
		}
		uid, errUID := strconv.ParseUint(f[2], 10, 32)
		gid, errGID := strconv.ParseUint(f[3], 10, 32)
		if errUID != nil || errGID != nil {
			return account{}, fmt.Errorf("account %s: ids %q and %q are no numbers", name, f[2], f[3])
		}
		a := account{name: name, home: f[5], shell: f[6], uid: uint32(uid), gid: uint32(gid)}
		a.groups = memberships(group, name, a.gid)
		return a, nil
	}
	return account{}, fmt.Errorf("%w: %q", errNoAccount, name)
}

func memberships(group, name string, gid uint32) []uint32 {
	gids := []uint32{gid}
	for line := range strings.Lines(group) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 4 || !slices.Contains(strings.Split(f[3], ","), name) {
			continue
		}
		if id, err := strconv.ParseUint(f[2], 10, 32); err == nil && !slices.Contains(gids, uint32(id)) {
			gids = append(gids, uint32(id))
		}
	}
	return gids
}

// environment is what a login would set, without what needs a session.
func (a account) environment() []string {
	return []string{
		"PATH=" + searchPath, "HOME=" + a.home, "USER=" + a.name, "LOGNAME=" + a.name,
		"SHELL=" + a.shell, "LANG=C.UTF-8",
	}
}
