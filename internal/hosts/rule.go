package hosts

import (
	"regexp"
	"sync"
)

// rule is a pattern that is compiled when it is first asked: a dozen of them
// would be a good part of this program's start otherwise.
type rule struct {
	text    string
	compile func() *regexp.Regexp
}

func newRule(text string) *rule {
	return &rule{text, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

// MatchString says whether s matches.
func (r *rule) MatchString(s string) bool { return r.compile().MatchString(s) }

// String is the pattern's text.
func (r *rule) String() string { return r.text }
