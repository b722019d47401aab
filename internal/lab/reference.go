package lab

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// What a platform would have made on a slot host before this project comes to
// it; layout.txt says which paths, the other files are contents.
//
//go:embed reference
var reference embed.FS

// The service account of the reference platform and where its files are.
const (
	referenceAccount = "vs"
	referenceApp     = "/srv/vs"
)

// entry is one line of layout.txt.
type entry struct {
	path    string
	mode    fs.FileMode // with fs.ModeDir or fs.ModeSymlink
	content []byte
	target  string // of a link
}

// parseLayout reads layout.txt; open returns the content of a named file.
func parseLayout(text string, open func(name string) ([]byte, error)) ([]entry, error) {
	var entries []entry
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		first, rest, _ := strings.Cut(line, " ")
		name, rest, _ := strings.Cut(rest, " ")
		sign, value, _ := strings.Cut(rest, " ")
		e := entry{path: name}
		if first == "link" {
			e.mode, e.target = fs.ModeSymlink, value
			entries = append(entries, e)
			continue
		}
		mode, err := strconv.ParseUint(first, 8, 12)
		if err != nil {
			return nil, fmt.Errorf("reference layout: %q: %w", line, err)
		}
		e.mode = fs.FileMode(mode)
		switch sign {
		case "":
			e.mode |= fs.ModeDir
		case ":":
			e.content = []byte(value + "\n")
		case "=":
			if e.content, err = open(value); err != nil {
				return nil, fmt.Errorf("reference layout: %q: %w", line, err)
			}
		default:
			return nil, fmt.Errorf("reference layout: %q: what is %q?", line, sign)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// makeReference makes the reference platform, once in a lab's life. The user
// manager of the account is not started: that is provisioning's last step.
func (l *Lab) makeReference(ctx context.Context) error {
	r, err := l.readRecord()
	if err != nil || r.Reference {
		return err
	}
	layout, err := reference.ReadFile("reference/layout.txt")
	if err != nil {
		return err
	}
	entries, err := parseLayout(string(layout), func(name string) ([]byte, error) {
		return reference.ReadFile(path.Join("reference", name))
	})
	if err != nil {
		return err
	}
	if err = l.addAccount(ctx); err == nil {
		err = l.In(func() error { return writeEntries(entries) })
	}
	if err != nil {
		return fmt.Errorf("make the reference platform in lab %s: %w", l.Name, err)
	}
	r.Reference = true
	return writeJSON(l.path("lab.json"), r)
}

// addAccount adds the service account where it is missing.
func (l *Lab) addAccount(ctx context.Context) error {
	look := func() error {
		_, err := readAccount("/etc", referenceAccount)
		return err
	}
	err := l.In(look)
	if !errors.Is(err, errNoAccount) {
		return err
	}
	// It may read the journal, so that a deploy can show why a unit failed (case B43).
	_, err = l.ask(ctx, "useradd", "--system", "--user-group", "--groups", "systemd-journal", "--home-dir", filepath.Join(referenceApp, "home"), "--shell", "/bin/bash", referenceAccount)
	if err != nil && l.In(look) == nil {
		return nil // the useradd of a killed up was still at it
	}
	return err
}

// writeEntries makes the entries in the file system of the calling thread.
func writeEntries(entries []entry) error {
	who, err := readAccount("/etc", referenceAccount)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(referenceApp, 0o755); err != nil {
		return err
	}
	app, err := os.OpenRoot(referenceApp)
	if err != nil {
		return err
	}
	defer app.Close()
	for _, e := range entries {
		if err := e.write(app); err != nil {
			return err
		}
		if err := app.Lchown(e.path, int(who.uid), int(who.gid)); err != nil {
			return err
		}
	}
	return nil
}

// write makes one entry, whatever an interrupted run left of it.
func (e entry) write(app *os.Root) error {
	var err error
	switch {
	case e.mode&fs.ModeSymlink != 0:
		if err := app.Remove(e.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return app.Symlink(e.target, e.path)
	case e.mode.IsDir():
		if err = app.Mkdir(e.path, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	default:
		err = app.WriteFile(e.path, e.content, 0o600)
	}
	if err != nil {
		return err
	}
	return app.Chmod(e.path, e.mode.Perm())
}
