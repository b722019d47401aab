package slotcheck

import (
	"regexp"
	"strings"
)

// hider takes user ids out of what a row says (case S-07). Rows are posted in
// tickets: slot names and counts may stand there, a user id never.
type hider struct {
	ids map[string]bool
}

const hidden = "<user>"

var (
	// userPath is a user's folder wherever a program may have written it, whole
	// or relative. An id holds none of the bytes that end it here.
	userPath = regexp.MustCompile(`_users/[^/\s"':;,]+`)
	idWord   = regexp.MustCompile(`[A-Za-z0-9_.-]+`)
)

// newHider knows the ids that the table or the users' folder names.
func newHider(ids []string) hider {
	h := hider{ids: map[string]bool{}}
	for _, id := range ids {
		h.ids[id] = true
	}
	return h
}

// path hides the user in a path or a sentence of our own.
func (h hider) path(text string) string {
	return userPath.ReplaceAllString(text, "_users/"+hidden)
}

// words hides users in text that another program wrote: in paths, and wherever
// a known id stands as a word of its own, at a sentence's end too.
func (h hider) words(text string) string {
	text = idWord.ReplaceAllStringFunc(text, func(word string) string {
		bare := strings.TrimRight(word, ".")
		switch {
		case h.ids[word]:
			return hidden
		case h.ids[bare]:
			return hidden + word[len(bare):]
		}
		return word
	})
	return h.path(text)
}
