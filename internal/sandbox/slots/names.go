package slots

import "regexp"

// The lengths are not in the patterns: a counted repetition is unrolled when it
// is compiled, which every call of slotctl would wait for.
var (
	prefixPattern = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	userPattern   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
)

const (
	maxPrefix = 16
	maxUserID = 128
)

// ValidPrefix says whether p may stand before a slot's number.
func ValidPrefix(p string) bool { return len(p) <= maxPrefix && prefixPattern.MatchString(p) }

// ValidSlot says whether name is a slot name of prefix: the prefix and at least
// two digits (slot01, slot99, slot100).
func ValidSlot(prefix, name string) bool {
	if len(name) < len(prefix)+2 || name[:len(prefix)] != prefix {
		return false
	}
	for _, c := range []byte(name[len(prefix):]) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// ValidUserID says whether id may hold a slot. The names of the shared folders
// below _users are never people.
func ValidUserID(id string) bool {
	switch id {
	case ".", "..", "_shared", "_system_global_secrets":
		return false
	}
	return len(id) <= maxUserID && userPattern.MatchString(id)
}
