package accounts

import (
	"slices"
	"strings"
)

// SlotShell is the login shell of every slot: nobody logs in as one.
const SlotShell = "/usr/sbin/nologin"

// BeyondGroups are the groups that name is in beside its primary one and those
// named as right. A slot has its own and the shared one: whatever else lets it in
// is more than the sandbox was made for, sudo and docker above all.
func (db *Database) BeyondGroups(name string, right ...string) []Group {
	u := db.users[name]
	var beyond []Group
	for _, g := range db.Groups() {
		if g.GID == u.GID || !g.Has(name) || slices.Contains(right, g.Name) {
			continue
		}
		beyond = append(beyond, g)
	}
	return beyond
}

// Guests are the accounts in the group of that name, by membership or as their
// primary group, without those named as right.
func (db *Database) Guests(group string, right ...string) []string {
	g, ok := db.groups[group]
	if !ok {
		return nil
	}
	var guests []string
	for _, name := range g.Members {
		if !slices.Contains(right, name) && !slices.Contains(guests, name) {
			guests = append(guests, name)
		}
	}
	for _, u := range db.Users() {
		if u.GID == g.GID && !slices.Contains(right, u.Name) && !slices.Contains(guests, u.Name) {
			guests = append(guests, u.Name)
		}
	}
	return guests
}

// Unlocked are the accounts of a host's passwd(5) file that a password opens, or
// that need none; shadow is the text of shadow(5). Of accounts that another
// source has nothing is known here.
func Unlocked(passwd, shadow []byte) map[string]bool {
	closed := passwords(shadow)
	open := map[string]bool{}
	for name, word := range passwords(passwd) {
		if word == "x" {
			var there bool
			if word, there = closed[name]; !there { // no login without its line
				continue
			}
		}
		if !strings.HasPrefix(word, "!") && !strings.HasPrefix(word, "*") {
			open[name] = true
		}
	}
	return open
}

// passwords are the second fields of an account file by the first ones.
func passwords(file []byte) map[string]string {
	words := map[string]string{}
	for line := range strings.Lines(string(file)) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 {
			if _, twice := words[f[0]]; !twice { // the first line counts
				words[f[0]] = f[1]
			}
		}
	}
	return words
}
