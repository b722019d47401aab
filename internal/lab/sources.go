package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// aptSources are the machine's own Debian sources, word for word; a lab is made
// from what the machine's administrator already trusts and can reach.
type aptSources struct {
	Lines   string // entries of *.list files
	Stanzas string // entries of *.sources files
}

// readAptSources collects the entries below etc (the machine's /etc/apt) that
// offer Debian's own packages of the suite.
func readAptSources(etc, suite string) (aptSources, error) {
	var found aptSources
	files := []string{filepath.Join(etc, "sources.list")}
	more, err := filepath.Glob(filepath.Join(etc, "sources.list.d", "*"))
	if err != nil {
		return found, err
	}
	slices.Sort(more)
	for _, name := range append(files, more...) {
		text, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return found, err
		}
		switch filepath.Ext(name) {
		case ".list":
			found.Lines += debianLines(string(text), suite)
		case ".sources":
			found.Stanzas += debianStanzas(string(text), suite)
		}
	}
	if found == (aptSources{}) {
		return found, fmt.Errorf("no Debian source for %s in %s; the lab is made from the machine's own Debian sources", suite, etc)
	}
	return found, nil
}

// isDebian judges one entry. Other vendors reuse Debian's suite names; their
// entries bring a key of their own or lack the component main.
func isDebian(suites, components []string, signedBy, suite string) bool {
	ours := func(s string) bool {
		return s == suite || s == suite+"-updates" || s == suite+"-security" || s == suite+"/updates"
	}
	return slices.ContainsFunc(suites, ours) && slices.Contains(components, "main") &&
		(signedBy == "" || strings.Contains(signedBy, "debian"))
}

// debianLines keeps the one-line entries "deb [options] uri suite component…".
func debianLines(text, suite string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "deb" {
			continue
		}
		words = words[1:]
		signedBy := ""
		if len(words) > 0 && strings.HasPrefix(words[0], "[") {
			end := slices.IndexFunc(words, func(w string) bool { return strings.HasSuffix(w, "]") })
			if end < 0 {
				continue
			}
			for _, option := range words[:end+1] {
				if value, ok := strings.CutPrefix(strings.Trim(option, "[]"), "signed-by="); ok {
					signedBy = value
				}
			}
			words = words[end+1:]
		}
		if len(words) >= 3 && isDebian(words[1:2], words[2:], signedBy, suite) {
			kept.WriteString(strings.TrimSpace(line) + "\n")
		}
	}
	return kept.String()
}

// debianStanzas keeps the deb822 entries, comments left out.
func debianStanzas(text, suite string) string {
	var kept strings.Builder
	var stanza strings.Builder
	fields, last := map[string]string{}, ""
	end := func() {
		disabled := strings.EqualFold(strings.TrimSpace(fields["enabled"]), "no")
		if !disabled && slices.Contains(strings.Fields(fields["types"]), "deb") &&
			isDebian(strings.Fields(fields["suites"]), strings.Fields(fields["components"]), strings.TrimSpace(fields["signed-by"]), suite) {
			kept.WriteString(stanza.String() + "\n")
		}
		stanza.Reset()
		fields, last = map[string]string{}, ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		if line == "" {
			end()
			continue
		}
		if name, value, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
			last = strings.ToLower(name)
			fields[last] = value
		} else {
			fields[last] += " " + line
		}
		stanza.WriteString(line + "\n")
	}
	end()
	return kept.String()
}
