package units

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// startConditions are the unit settings whose path must be there for a start.
var startConditions = regexp.MustCompile(`^(Condition|Assert)(PathExists|PathExistsGlob|PathIsDirectory|FileNotEmpty|FileIsExecutable|DirectoryNotEmpty)$`)

// Conditions are the settings of unit, drop-ins included, that let it start only
// where a path is there, as they stand in its files: "ConditionPathExists=/a/b".
// Triggering ("|") and negated ("!") ones are left out.
func (m *Manager) Conditions(ctx context.Context, unit string) ([]string, error) {
	text, err := m.run(ctx, "cat", "--", unit)
	if err != nil {
		return nil, err
	}
	return parseConditions(text), nil
}

func parseConditions(text string) []string {
	var found []string
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || !startConditions.MatchString(key) {
			continue
		}
		if value == "" { // an empty setting takes back those before it
			found = slices.DeleteFunc(found, func(c string) bool { return strings.HasPrefix(c, key+"=") })
			continue
		}
		if !strings.HasPrefix(value, "!") && !strings.HasPrefix(value, "|") {
			found = append(found, key+"="+value)
		}
	}
	return found
}

// Needs are the paths below dir that a start of unit needs, as its files name
// them, relative to dir, sorted: programs and words of its start commands, and
// what its conditions ask for.
func (m *Manager) Needs(ctx context.Context, unit, dir string) ([]string, error) {
	out, err := m.run(ctx, "show", "--property=ExecStart,ExecStartPre", "--", unit)
	if err != nil {
		return nil, err
	}
	words := startWords(out)
	conditions, err := m.Conditions(ctx, unit)
	if err != nil {
		return nil, fmt.Errorf("what %s needs: %w", unit, err)
	}
	for _, c := range conditions {
		_, path, _ := strings.Cut(c, "=")
		words = append(words, path)
	}
	var needs []string
	for _, w := range words {
		if rel, ok := strings.CutPrefix(w, dir+"/"); ok && rel != "" && !strings.ContainsAny(rel, "*?[%$") {
			needs = append(needs, rel)
		}
	}
	slices.Sort(needs)
	return slices.Compact(needs), nil
}

// startWords are the words of the start commands in the output of systemctl
// show: "ExecStart={ path=/a ; argv[]=/a --b ; ignore_errors=no ; … }".
func startWords(out string) []string {
	var words []string
	for line := range strings.Lines(out) {
		for field := range strings.SplitSeq(line, " ; ") {
			if _, path, ok := strings.Cut(field, "{ path="); ok {
				words = append(words, path)
			}
			if argv, ok := strings.CutPrefix(field, "argv[]="); ok {
				words = append(words, strings.Fields(argv)...)
			}
		}
	}
	return words
}
