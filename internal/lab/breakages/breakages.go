// Package breakages breaks a lab in the ways that slot hosts broke: each is a
// small script of what an administrator's slip or an old release would have done,
// run by root in the lab. Every breakage keeps a record there of what it touched,
// by which Heal takes it back.
//
// It imports internal/lab and nothing else of the project; of the shipped
// packages only internal/cli imports it, and tests do.
package breakages

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"

	"agentworks-deploy/internal/lab"
)

//go:embed lib.sh scripts
var files embed.FS

// Breakage is one way to break a provisioned lab with the sample release and
// the users u1 and u2 in slot01 and slot02.
type Breakage struct {
	Name  string   // as typed
	Story string   // how it came about, one line
	Level string   // the lowest level of slotcheck that finds it
	Rows  []string // the checks that say FAIL for it there, all of them
	text  string
}

// All lists the breakages; the four of October 2026 come first.
func All() ([]Breakage, error) {
	names, err := fs.Glob(files, "scripts/*.sh")
	if err != nil {
		return nil, err
	}
	var all []Breakage
	for _, file := range names {
		text, err := files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		b, err := parse(file, string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// parse reads the header of a script: "# key: words".
func parse(file, text string) (Breakage, error) {
	_, name, _ := strings.Cut(strings.TrimSuffix(file, ".sh"), "-")
	b := Breakage{Name: name, text: text}
	for line := range strings.Lines(text) {
		words, ok := strings.CutPrefix(strings.TrimSpace(line), "# ")
		if !ok {
			break
		}
		key, value, _ := strings.Cut(words, ": ")
		switch key {
		case "story":
			b.Story = value
		case "rows":
			b.Rows = strings.Fields(value)
		case "level":
			b.Level = value
		default:
			return b, fmt.Errorf("breakage %s: what is %q?", file, line)
		}
	}
	if b.Name == "" || b.Story == "" || len(b.Rows) == 0 || b.Level != "basic" && b.Level != "full" {
		return b, fmt.Errorf("breakage %s: it needs a story, rows and a level", file)
	}
	return b, nil
}

// Find returns the named breakage.
func Find(name string) (Breakage, error) {
	all, err := All()
	if err != nil {
		return Breakage{}, err
	}
	i := slices.IndexFunc(all, func(b Breakage) bool { return b.Name == name })
	if i < 0 {
		return Breakage{}, fmt.Errorf("there is no breakage %q", name)
	}
	return all[i], nil
}

// Break breaks l; the error wraps lab.ErrNotUp for one that is down. With an
// error it may be half-done; Heal takes that back too.
func (b Breakage) Break(ctx context.Context, l *lab.Lab) error {
	if _, err := b.run(ctx, l, "break_host"); err != nil {
		return fmt.Errorf("break lab %s by %s: %w", l.Name, b.Name, err)
	}
	return nil
}

// Heal takes back every breakage that l's record has, the newest first, and
// names them. What a fix has put right meanwhile comes back as it was too.
func Heal(ctx context.Context, l *lab.Lab) (healed []string, err error) {
	const list = `[ ! -d "$record" ] || ls -r "$record"`
	broken, err := run(ctx, l, list)
	if err != nil {
		return nil, fmt.Errorf("read what broke lab %s: %w", l.Name, err)
	}
	for _, entry := range strings.Fields(broken) {
		_, name, _ := strings.Cut(entry, "-")
		b, err := Find(name)
		if err == nil {
			_, err = b.run(ctx, l, "heal_host")
		}
		if err != nil {
			return healed, fmt.Errorf("heal lab %s of %s: %w", l.Name, name, err)
		}
		healed = append(healed, name)
	}
	return healed, nil
}

// run calls a function of lib.sh with the script's own functions in place.
func (b Breakage) run(ctx context.Context, l *lab.Lab, function string) (string, error) {
	return run(ctx, l, b.text+"\n"+function+" "+b.Name)
}

func run(ctx context.Context, l *lab.Lab, script string) (string, error) {
	lib, err := files.ReadFile("lib.sh")
	if err != nil {
		return "", err
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, "/bin/sh", "-eu")
	cmd.Stdin = strings.NewReader(string(lib) + script + "\n")
	cmd.Stdout, cmd.Stderr = &out, &said
	err = l.Start(cmd, "root")
	if err == nil {
		err = cmd.Wait()
	}
	if text := strings.TrimSpace(said.String()); err != nil && text != "" {
		err = &refusal{said: strings.ReplaceAll(text, "\n", "; "), end: err}
	}
	return out.String(), err
}

// refusal is what a script said before it gave up, and wraps how its shell ended.
type refusal struct {
	said string
	end  error
}

func (r *refusal) Error() string { return r.said }
func (r *refusal) Unwrap() error { return r.end }
