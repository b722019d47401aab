// Package accounts says what a host knows about accounts: the account database
// as every program on the host sees it, and the groups that running processes
// really hold. It only reads. It imports nothing else of this project; what
// runs as a slot must never import it.
package accounts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// User is one line of the passwd database.
type User struct {
	Name, Comment, Home, Shell string
	UID, GID                   uint32
}

// Group is one line of the group database. Members does not hold the accounts
// whose primary group it is.
type Group struct {
	Name    string
	GID     uint32
	Members []string
}

// Has reports whether name is listed as a member.
func (g Group) Has(name string) bool {
	for _, m := range g.Members {
		if m == name {
			return true
		}
	}
	return false
}

// Getent asks one database ("passwd", "group") for keys, or for all it lists
// when there are none, and answers with its lines. A key that nobody knows is
// no error. Accounts are resolved this way and not from /etc/passwd, because a
// static program sees no directory service (case B11).
type Getent func(ctx context.Context, database string, keys ...string) ([]byte, error)

// getentDeadline ends a question to a directory service that does not answer.
const getentDeadline = 20 * time.Second

// HostGetent runs the host's getent(1); no answer within getentDeadline is an
// error.
func HostGetent(ctx context.Context, database string, keys ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, getentDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/getent", append([]string{database}, keys...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.WaitDelay = time.Second
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 { // some key was not found
		err = nil
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("ask getent for %s: %w %s", database, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return out, nil
}

// Database is one look at the accounts.
type Database struct {
	users      map[string]User
	groups     map[string]Group
	userNames  []string // in the order of the answer
	groupNames []string
	// Names by id, to find those that share one.
	uids, gids map[uint32][]string
}

// Load reads all accounts that the host lists, and those named, which a
// directory service may know without listing them.
func Load(ctx context.Context, getent Getent, names ...string) (*Database, error) {
	db := &Database{users: map[string]User{}, groups: map[string]Group{}, uids: map[uint32][]string{}, gids: map[uint32][]string{}}
	for _, keys := range [][]string{nil, names} {
		if keys != nil && len(keys) == 0 {
			continue
		}
		if err := db.add(ctx, getent, keys); err != nil {
			return nil, err
		}
	}
	return db, nil
}

// AddIDs looks ids up one by one, as user and as group ids, for accounts that
// are known but not listed.
func (db *Database) AddIDs(ctx context.Context, getent Getent, ids []uint32) error {
	if len(ids) == 0 {
		return nil
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = strconv.FormatUint(uint64(id), 10)
	}
	return db.add(ctx, getent, keys)
}

func (db *Database) add(ctx context.Context, getent Getent, keys []string) error {
	out, err := getent(ctx, "passwd", keys...)
	if err != nil {
		return err
	}
	users, err := parseUsers(out)
	if err != nil {
		return err
	}
	for _, u := range users {
		if _, known := db.users[u.Name]; !known { // the first source wins, as in nsswitch.conf
			db.users[u.Name] = u
			db.userNames = append(db.userNames, u.Name)
			db.uids[u.UID] = append(db.uids[u.UID], u.Name)
		}
	}
	if out, err = getent(ctx, "group", keys...); err != nil {
		return err
	}
	groups, err := parseGroups(out)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if _, known := db.groups[g.Name]; !known {
			db.groups[g.Name] = g
			db.groupNames = append(db.groupNames, g.Name)
			db.gids[g.GID] = append(db.gids[g.GID], g.Name)
		}
	}
	return nil
}

// User returns the account of that name.
func (db *Database) User(name string) (User, bool) {
	u, ok := db.users[name]
	return u, ok
}

// Group returns the group of that name.
func (db *Database) Group(name string) (Group, bool) {
	g, ok := db.groups[name]
	return g, ok
}

// Users returns all accounts in the order of the host's answer.
func (db *Database) Users() []User {
	all := make([]User, len(db.userNames))
	for i, name := range db.userNames {
		all[i] = db.users[name]
	}
	return all
}

// Groups returns all groups in the order of the host's answer.
func (db *Database) Groups() []Group {
	all := make([]Group, len(db.groupNames))
	for i, name := range db.groupNames {
		all[i] = db.groups[name]
	}
	return all
}

// GroupsOf returns the ids of every group name is in, its primary one first; none
// for an account that is not there.
func (db *Database) GroupsOf(name string) []uint32 {
	u, ok := db.users[name]
	if !ok {
		return nil
	}
	ids := []uint32{u.GID}
	for _, g := range db.groupNames {
		if g := db.groups[g]; g.GID != u.GID && g.Has(name) {
			ids = append(ids, g.GID)
		}
	}
	return ids
}

func parseUsers(data []byte) ([]User, error) {
	var users []User
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) != 7 || f[0] == "" {
			return nil, fmt.Errorf("read the passwd database: %q is not an account", line)
		}
		uid, err1 := parseID(f[2])
		gid, err2 := parseID(f[3])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("read the passwd database: account %q: %w", f[0], err)
		}
		users = append(users, User{Name: f[0], UID: uid, GID: gid, Comment: f[4], Home: f[5], Shell: f[6]})
	}
	return users, nil
}

func parseGroups(data []byte) ([]Group, error) {
	var groups []Group
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) != 4 || f[0] == "" {
			return nil, fmt.Errorf("read the group database: %q is not a group", line)
		}
		gid, err := parseID(f[2])
		if err != nil {
			return nil, fmt.Errorf("read the group database: group %q: %w", f[0], err)
		}
		g := Group{Name: f[0], GID: gid}
		for m := range strings.SplitSeq(f[3], ",") {
			if m != "" {
				g.Members = append(g.Members, m)
			}
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func parseID(s string) (uint32, error) {
	id, err := strconv.ParseUint(s, 10, 32)
	return uint32(id), err
}
