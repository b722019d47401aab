package accounts

import (
	"errors"
	"fmt"
)

// ErrMissing is why a slot has no identity yet: its account or its group is
// still to be made.
var ErrMissing = errors.New("not there")

// CheckSlot says why the account name is not the slot of that name: whoever
// gives a user a slot, or runs a command as one, means the account with the
// slot's home, a group of its own name as the primary one, and ids that nobody
// else has (case P-03). Which number the ids are is no matter: accounts that
// exist keep theirs. An account or a group that is still to be made is an error
// that errors.Is(err, ErrMissing).
func (db *Database) CheckSlot(name, home string) error {
	u, ok := db.users[name]
	g, hasGroup := db.groups[name]
	switch {
	case !ok:
		return fmt.Errorf("the account %s is %w", name, ErrMissing)
	case u.Home != home:
		return fmt.Errorf("the account %s has the home %s and not %s, so it belongs to something else", name, u.Home, home)
	case u.UID == 0 || u.GID == 0:
		return fmt.Errorf("the account %s has uid %d and gid %d", name, u.UID, u.GID)
	case hasGroup && u.GID != g.GID:
		return fmt.Errorf("the primary group of %s is gid %d, but the group %s has gid %d", name, u.GID, name, g.GID)
	}
	for _, other := range db.uids[u.UID] {
		if other != name {
			return fmt.Errorf("%s and %s share uid %d", name, other, u.UID)
		}
	}
	for _, other := range db.gids[u.GID] {
		switch {
		case other == name:
		case hasGroup:
			return fmt.Errorf("%s and %s share gid %d", name, other, u.GID)
		default:
			return fmt.Errorf("the primary group of %s is %s and not %s", name, other, name)
		}
	}
	if !hasGroup {
		return fmt.Errorf("the group %s is %w", name, ErrMissing)
	}
	return nil
}
