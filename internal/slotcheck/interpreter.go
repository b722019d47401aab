package slotcheck

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// programKind is how an interpreter's command line names what it runs.
type programKind int

const (
	fromScript programKind = iota // a file; see what.Script
	fromWords                     // code on the command line
	fromStdin
	fromModule // found by the interpreter's own search
)

// what says what an interpreter runs. The words themselves stay out of it.
type what struct {
	Kind   programKind
	Script string
}

// interpreter is one family's way of reading its command line, as far as it
// takes to find the program: letters of one-dash options that carry code, that
// name a module, and that take a value.
type interpreter struct {
	name                 *regexp.Regexp
	code, module, value  string
	longCode, longValue  []string
	verbCode, verbScript []string // first words: deno eval, bun run
}

func interpreters() []interpreter {
	return []interpreter{
		{name: regexp.MustCompile(`^(python|pypy)[0-9.]*$`), code: "c", module: "m", value: "WX", longValue: []string{"--check-hash-based-pycs"}},
		{name: regexp.MustCompile(`^(node|nodejs)[0-9.]*$`), code: "ep", value: "rC", longCode: []string{"--eval", "--print"}, longValue: []string{"--require", "--import", "--loader", "--experimental-loader", "--conditions", "--env-file"}},
		{name: regexp.MustCompile(`^deno$`), verbCode: []string{"eval", "repl"}, verbScript: []string{"run"}},
		{name: regexp.MustCompile(`^bun$`), code: "ep", value: "r", longCode: []string{"--eval", "--print"}, longValue: []string{"--require", "--preload", "--cwd", "--config"}, verbCode: []string{"repl"}, verbScript: []string{"run"}},
		{name: regexp.MustCompile(`^ruby[0-9.]*$`), code: "e", value: "rICEFTW"},
		{name: regexp.MustCompile(`^perl[0-9.]*$`), code: "eE", value: "I"},
		{name: regexp.MustCompile(`^php[0-9.]*$`), code: "rBRE", value: "cdzSt", longCode: []string{"--run", "--process-begin", "--process-code", "--process-end"}, longValue: []string{"--php-ini", "--define", "--server", "--docroot"}},
	}
}

// interpreterOf is the family of a program by its file's name.
func interpreterOf(exe string) (interpreter, bool) {
	base := strings.TrimSuffix(path.Base(exe), " (deleted)")
	for _, in := range interpreters() {
		if in.name.MatchString(base) {
			return in, true
		}
	}
	return interpreter{}, false
}

// runs reads a command line, without the interpreter's own name. Where it is
// unsure it errs towards a script that does not exist, which is none of the
// release's.
func (in interpreter) runs(words []string) what {
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "-":
			return what{Kind: fromStdin}
		case w == "--":
			return in.script(words[i+1:])
		case strings.HasPrefix(w, "--"):
			name, _, joined := strings.Cut(w, "=")
			if slices.Contains(in.longCode, name) {
				return what{Kind: fromWords}
			}
			if slices.Contains(in.longValue, name) && !joined {
				i++
			}
		case strings.HasPrefix(w, "-"):
			kind, takesNext := in.letters(w[1:])
			if kind != fromScript {
				return what{Kind: kind}
			}
			if takesNext {
				i++
			}
		default:
			return in.script(words[i:])
		}
	}
	return what{Kind: fromStdin}
}

// letters reads joined one-letter options. A letter with a value takes the rest
// of the word, or the next one.
func (in interpreter) letters(word string) (kind programKind, takesNext bool) {
	for i := 0; i < len(word); i++ {
		switch c := word[i]; {
		case strings.IndexByte(in.code, c) >= 0:
			return fromWords, false
		case strings.IndexByte(in.module, c) >= 0:
			return fromModule, false
		case strings.IndexByte(in.value, c) >= 0:
			return fromScript, i == len(word)-1
		}
	}
	return fromScript, false
}

// script takes the first word as a verb of the interpreter or as the script.
func (in interpreter) script(words []string) what {
	if len(words) == 0 {
		return what{Kind: fromStdin}
	}
	switch {
	case slices.Contains(in.verbCode, words[0]):
		return what{Kind: fromWords}
	case slices.Contains(in.verbScript, words[0]):
		rest := in
		rest.verbCode, rest.verbScript = nil, nil
		return rest.runs(words[1:])
	case words[0] == "-":
		return what{Kind: fromStdin}
	}
	return what{Kind: fromScript, Script: words[0]}
}
