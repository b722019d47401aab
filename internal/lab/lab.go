// Package lab is the throwaway slot host on the machine one sits at: a Debian
// with systemd as PID 1 in mount, pid, cgroup, uts, ipc and network namespaces
// of its own, over a root file system that is made once. Nothing is ever mounted
// in the machine's own mount namespace, so ending the lab's first process ends
// all of it.
//
// A lab is a test bench and no security boundary: root in a lab is root of the
// machine's kernel.
//
// The package may import report only. Programs that run as a slot must never
// import it.
package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"agentworks-deploy/internal/report"
)

// DefaultName is the lab that is meant where none is named.
const DefaultName = "lab"

// Store says where labs and root file systems are kept.
type Store struct {
	Cache string // root file systems, one folder a recipe
	Labs  string // one folder a lab
}

// DefaultStore is the machine's one store.
func DefaultStore() Store {
	return Store{Cache: "/var/cache/agentworks-deploy", Labs: "/var/lib/agentworks-deploy/labs"}
}

// Lab is one lab by name, up or not. Its methods may be called from many
// goroutines; those that change the lab take its lock.
type Lab struct {
	Name  string
	store Store
}

// A name becomes a host name, a folder and a cgroup.
var validName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)

// Lab returns the lab called name, which need not exist.
func (s Store) Lab(name string) (*Lab, error) {
	if !validName.MatchString(name) || strings.HasSuffix(name, "-") {
		return nil, report.Coded(report.ExitUsage, "lab name %q: want a lower case letter, then at most 39 lower case letters, digits and dashes, no dash at the end", name)
	}
	return &Lab{Name: name, store: s}, nil
}

// Find returns the lab called name in the default store, which need not be up.
func Find(name string) (*Lab, error) { return DefaultStore().Lab(name) }

// List returns every lab that has files, by name.
func (s Store) List() ([]*Lab, error) {
	entries, err := os.ReadDir(s.Labs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the labs: %w", err)
	}
	var labs []*Lab
	for _, e := range entries {
		if l, err := s.Lab(e.Name()); err == nil && e.IsDir() {
			labs = append(labs, l)
		}
	}
	return labs, nil
}

// The folders of a lab that are plain folders of the machine's file system,
// bound in: a workspace overlay needs a real file system there.
func plainFolders() []string { return []string{"srv", "data", "home", "var/tmp"} }

// Dir is the lab's own folder, 0700 of root.
func (l *Lab) Dir() string { return filepath.Join(l.store.Labs, l.Name) }

// Log is what the lab's first process said before the journal took over.
func (l *Lab) Log() string { return l.path("boot.log") }

func (l *Lab) path(name string) string { return filepath.Join(l.Dir(), name) }

// plain is the folder behind one of plainFolders.
func (l *Lab) plain(folder string) string {
	return l.path(strings.ReplaceAll(folder, "/", "-"))
}

// record is <lab>/lab.json: what the lab's files are. It is written when they
// are complete; without it they are remains of an interrupted up.
type record struct {
	RootFS    string `json:"rootfs"`    // name of the root file system below the cache
	Copied    bool   `json:"copied"`    // root/ is an unpacked copy, not an overlay
	Reference bool   `json:"reference"` // the reference platform was made in it
}

func (l *Lab) readRecord() (record, error) {
	var r record
	return r, l.needsRoot(readJSON(l.path("lab.json"), &r))
}

// needsRoot words a refusal of the lab's files, which are root's.
func (l *Lab) needsRoot(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return report.Coded(report.ExitUsage, "not root: lab %s needs root: run this with sudo", l.Name)
	}
	return err
}

// Status is what is known of a lab without asking it.
type Status struct {
	Name      string
	Exists    bool // it has files
	Up        bool
	PID       int // of its first process, as the machine sees it; 0 when down
	Reference bool
	RootFS    string
}

// Status looks at the lab without taking its lock.
func (l *Lab) Status() (Status, error) {
	s := Status{Name: l.Name}
	r, err := l.readRecord()
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	s.Exists, s.Reference, s.RootFS = true, r.Reference, r.RootFS
	p, err := l.process()
	if errors.Is(err, ErrNotUp) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer p.Close()
	s.Up, s.PID = true, p.PID
	return s, nil
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// writeJSON replaces path by a complete file or leaves it as it was. The folder
// is root's own.
func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	next := path + ".new"
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}
