package slotcheck

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/slots"
)

// denial is one thing that a confined command must not be able to do: the
// script, tried on $1; its exit status 0 is a leak. Aim says on what, after a
// control that it is there.
type denial struct {
	name   string
	aim    func(a *audit, s subject) (aim, error)
	script string
}

// aim is what a denial is tried on. Why says that there is nothing to try it on,
// and is then the row's SKIP. Show is what a row calls it where the path says
// too little, file a second word for the script. Undo, which may be nil, takes
// back what the aim or a leak made.
type aim struct {
	path, file, show, why string
	undo                  func()
}

// The scripts of denials. Cat and ls end with 1 and 2 when they are refused.
const (
	tryRead  = `cat -- "$1" >/dev/null`
	tryList  = `ls -A -- "$1" >/dev/null`
	tryTree  = `ls -A -- "$1" >/dev/null && exit 0; test -n "$2" && cat -- "$2" >/dev/null`
	tryWrite = `: >"$1"`
	// A folder that is there and empty is as good as a refused one.
	tryFind = `test -n "$(ls -A -- "$1")"`
)

func denials() []denial {
	return []denial{
		{"deny-browser-profile", (*audit).cookie, tryRead},
		{"deny-browser-profile-list", (*audit).profile, tryList},
		{"deny-other-user", (*audit).otherUser, tryTree},
		{"deny-app-env", there(func(a *audit) string { return a.layout.EnvFile() }), tryRead},
		{"deny-app-state", there((*audit).stateRoot), tryList},
		{"deny-list-users", there(func(a *audit) string { return a.layout.Users() }), tryList},
		{"deny-list-releases", there(func(a *audit) string { return a.layout.Releases() }), tryList},
		{"deny-not-granted", (*audit).worldReadable, tryRead},
		{"deny-write-outside", (*audit).newFile, tryWrite},
		{"deny-host-tmp", (*audit).scratchFile, tryRead},
		{"deny-slot-run-root", there(func(a *audit) string { return a.config.SlotRunRoot }), tryFind},
	}
}

// denialChecks turns denials into checks of each slot.
func denialChecks() []check {
	var checks []check
	for _, d := range denials() {
		checks = append(checks, check{d.name, d.run})
	}
	return append(checks, check{"deny-shadow", checkShadow}, check{"deny-host-sockets", checkHostSockets})
}

func (d denial) run(ctx context.Context, a *audit, s subject) []report.Row {
	at, err := d.aim(a, s)
	if at.undo != nil {
		defer at.undo()
	}
	switch {
	case err != nil:
		return unknown("what to try it on cannot be found: " + a.hide.words(cause(err).Error()))
	case at.why != "":
		return skip(at.why)
	}
	if at.show == "" {
		at.show = a.shown(at.path)
	}
	return a.tryDenied(ctx, s, d.script, at, at.path, at.file)
}

// tryDenied runs script on words in the sandbox. The script's own words come
// between a start mark and an end mark with its exit status: without the first
// the sandbox did not start, which proves nothing (case S-04), and neither mark
// can be made by a launcher that does not run the script.
func (a *audit) tryDenied(ctx context.Context, s subject, script string, at aim, words ...string) []report.Row {
	mark := rand.Text()
	o, err := a.confined(ctx, s, markScript(mark, script), words...)
	if err != nil {
		return a.unanswered("", err)
	}
	status, started := marked(o.Stdout, mark)
	switch {
	case !started:
		return a.nothingProven(o, nil, s)
	case status == "":
		return unknown("the probe did not come to its end")
	case status == "0":
		return []report.Row{{State: report.Fail, Detail: at.show + " is open to a confined command",
			Cause: a.leaks(), Fix: a.deployFix()}}
	case status == "126" || status == "127":
		return unknown("the probe's own program did not run")
	}
	return pass(at.show + " refused")
}

// leaks is the cause of a denial that was none.
func (a *audit) leaks() string { return "the launcher " + a.launcher + " does not confine" }

// markScript wraps script, which runs in a subshell, into the two marks.
func markScript(mark, script string) string {
	return "echo " + mark + " start\n(" + script + "\n)\necho " + mark + " end $?\n"
}

// marked reads the marks: whether the script started, and its exit status.
func marked(stdout, mark string) (status string, started bool) {
	for line := range strings.Lines(stdout) {
		line = strings.TrimSuffix(line, "\n")
		if line == mark+" start" {
			started = true
		}
		if rest, ok := strings.CutPrefix(line, mark+" end "); ok && started {
			status = rest
		}
	}
	return status, started
}

// there aims at a path that the service itself must see.
func there(pick func(*audit) string) func(*audit, subject) (aim, error) {
	return func(a *audit, _ subject) (aim, error) {
		p := pick(a)
		_, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			return aim{why: a.shown(p) + " does not exist"}, nil
		}
		return aim{path: p}, err
	}
}

// profile is the first browser profile of a project; cookie a file in it.
func (a *audit) profile(subject) (aim, error) {
	for _, root := range a.profileRoots() {
		dir, err := os.ReadDir(root)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return aim{}, err
		}
		for _, e := range dir {
			if e.IsDir() {
				return aim{path: filepath.Join(root, e.Name())}, nil
			}
		}
	}
	return aim{why: "there is no browser profile"}, nil
}

func (a *audit) cookie(s subject) (aim, error) {
	profile, err := a.profile(s)
	if profile.path == "" {
		return profile, err
	}
	found := ""
	err = filepath.WalkDir(profile.path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && (found == "" || strings.Contains(d.Name(), "Cookies")) {
			found = p
		}
		return nil
	})
	if found == "" {
		return aim{why: "the browser profile holds no file"}, err
	}
	return aim{path: found}, err
}

// otherUser is the tree of another user than the slot's, and a file in it.
func (a *audit) otherUser(s subject) (aim, error) {
	entries, err := os.ReadDir(a.layout.Users())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return aim{}, err
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != s.User && slots.ValidUserID(e.Name()) {
			tree := a.layout.UserTree(e.Name())
			return aim{path: tree, file: anyFile(tree)}, nil
		}
	}
	return aim{why: "there is no other user"}, nil
}

// anyFile is a regular file below dir that a request can name; empty where none
// is found soon.
func anyFile(dir string) string {
	found, looked := "", 0
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if looked++; looked > 1000 {
			return fs.SkipAll
		}
		if err == nil && d.Type().IsRegular() && utf8.ValidString(p) {
			found = p
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// worldReadable is a file that only the launcher keeps a slot from: without it
// the slot could read the file, no grant holds it, and it lies on no path that
// is always readable.
func (a *audit) worldReadable(s subject) (aim, error) {
	for _, p := range []string{
		"/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite", "/var/lib/pacman/local/ALPM_DB_VERSION",
		"/var/cache/debconf/config.dat", "/var/log/dpkg.log", "/var/log/lastlog", "/var/log/wtmp",
	} {
		if info, err := os.Lstat(p); err == nil && info.Mode().IsRegular() && a.mayRead(p, s) {
			return aim{path: p}, nil
		}
	}
	return aim{}, errors.New("there is no file that others may read outside of what every command is given")
}

// mayRead says whether modes and ACLs let the slot read p.
func (a *audit) mayRead(p string, s subject) bool {
	steps := way(p)
	for i, step := range steps {
		acc, err := readAccess(step)
		want := uint16(permX)
		if i == len(steps)-1 {
			want = permR
		}
		if err != nil || !acc.decide(s.Account.UID, s.Groups, want).Granted {
			return false
		}
	}
	return true
}

// newFile is a file that is not there yet in the docs root. A leak that makes it
// is taken back, with the folder's time.
func (a *audit) newFile(s subject) (aim, error) {
	file := filepath.Join(a.docs, ".agentworks-slotcheck-"+s.Slot+"-"+rand.Text())
	var before unix.Stat_t
	if err := unix.Stat(a.docs, &before); err != nil {
		return aim{}, err
	}
	return aim{path: file, show: "a new file in <docs>", undo: func() {
		if unix.Unlink(file) == nil {
			// The time is put back where the service may; a leak is told anyway.
			_ = unix.UtimesNanoAt(unix.AT_FDCWD, a.docs, []unix.Timespec{before.Atim, before.Mtim}, 0)
		}
	}}, nil
}

// scratchFile is a file in the host's /tmp that everybody may read.
func (a *audit) scratchFile(subject) (aim, error) {
	file := "/tmp/agentworks-slotcheck-" + rand.Text()
	j, err := hireJanitor(`rm -f -- "$1"`, file)
	if err != nil {
		return aim{}, err
	}
	at := aim{path: file, show: "a file in the host's /tmp", undo: j.clean}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return at, err
	}
	return at, errors.Join(f.Chmod(0o644), f.Close())
}
