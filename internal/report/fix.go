package report

import (
	"fmt"
	"strings"
)

// Command is the fix as a person pastes it: every word outside
// [A-Za-z0-9_./:=-] in single quotes, since paths come from folders that users
// name. It is empty where there is nothing to run: no words, or a word with
// bytes that a terminal would not show.
func (f *Fix) Command() string {
	words := make([]string, len(f.Argv))
	for i, w := range f.Argv {
		if !printable(w) {
			return ""
		}
		words[i] = Quote(w)
	}
	return strings.Join(words, " ")
}

// Line is the fix as it ends a FAIL line.
func (f *Fix) Line() string {
	command := f.Command()
	switch {
	case command == "" && f.Note != "":
		return "to do by hand: " + Escape(f.Note)
	case command == "":
		return "no fix to run: a name in it holds control bytes"
	case f.Note != "":
		return fmt.Sprintf("fix: %s (not runnable as it stands: %s)", command, Escape(f.Note))
	}
	return "fix: " + command
}

// Quote puts a word into single quotes unless a shell reads it as it stands.
func Quote(word string) string {
	if word != "" && strings.IndexFunc(word, special) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func special(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("_./:=-", r)
}
