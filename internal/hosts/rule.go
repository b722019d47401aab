package hosts

import (
	"fmt"
	"regexp"
	"sync"
)

// rule is a pattern that is compiled when it is first asked: a dozen of them
// would be a good part of this program's start otherwise.
type rule struct {
	text    string
	says    string // what a value that does not match is; empty: the pattern tells it
	hide    bool   // such a value is not shown: somebody may have put a secret there
	compile func() *regexp.Regexp
}

func newRule(text string) *rule {
	return &rule{text: text, compile: sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

// saying gives the rule words for a value that does not match.
func (r *rule) saying(says string) *rule { r.says = says; return r }

// hiding keeps such a value out of those words.
func (r *rule) hiding() *rule { r.hide = true; return r }

// MatchString says whether s matches.
func (r *rule) MatchString(s string) bool { return r.compile().MatchString(s) }

// String is the pattern's text.
func (r *rule) String() string { return r.text }

// wrong says what is wrong with a value that does not match.
func (r *rule) wrong(value string) string {
	switch {
	case r.hide:
		return r.says
	case r.says != "":
		return fmt.Sprintf("%q %s", value, r.says)
	}
	return fmt.Sprintf("%q does not match %s", value, r.text)
}
