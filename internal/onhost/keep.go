package onhost

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// An answer that is too long for its channel waits in a file on the host: the
// line before the trailer is then keptMark and the file's name.
const (
	keptMark = "agentworks-deploy-kept"
	keptFor  = time.Hour // an answer that nobody came for is dropped by the next one
)

// keptName says whether name is what rand.Text makes: nothing that a path could
// go astray with.
func keptName(name string) bool {
	return len(name) == 26 && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// keptFolder is closed to everybody but the account: root's in /run, another's
// in the folder that its login session has there.
func keptFolder(uid int) string {
	if uid == 0 {
		return "/run/agentworks-deploy/answers"
	}
	return "/run/user/" + strconv.Itoa(uid) + "/agentworks-deploy-answers"
}

// keepAnswer stores line for the account this runs as and returns its name.
func keepAnswer(line []byte) (string, error) { return keepIn(keptFolder(os.Geteuid()), line) }

func keepIn(folder string, line []byte) (string, error) {
	if err := ownFolder(folder); err != nil {
		return "", fmt.Errorf("keep an answer of %d bytes: %w", len(line), err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return "", fmt.Errorf("keep an answer of %d bytes: %w", len(line), err)
	}
	defer root.Close()
	dropStale(root, time.Now().Add(-keptFor))
	name := rand.Text()
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("keep an answer: %w", err)
	}
	_, err = file.Write(line)
	if err = errors.Join(err, file.Close()); err != nil {
		_ = root.Remove(name) // half of it is of no use; the next answer drops it otherwise
		return "", fmt.Errorf("keep an answer: %w", err)
	}
	return name, nil
}

// ownFolder makes folder, whose parent only this account (or root) writes to,
// and refuses one that others may enter.
func ownFolder(folder string) error {
	if os.Geteuid() == 0 {
		if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
			return err
		}
	}
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || info.Mode().Perm()&0o077 != 0 || int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder of this account's alone", folder)
	}
	return nil
}

func dropStale(root *os.Root, before time.Time) {
	dir, err := root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	entries, _ := dir.ReadDir(-1)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
			_ = root.Remove(e.Name()) // another half may have been faster
		}
	}
}

// pageScript prints a page of a kept answer, and removes the answer with its
// last page. Words: name, offset of the page from 1, its length, "last" or "".
const pageScript = scriptHead + `
uid=$(id -u)
case $uid in 0) dir=/run/agentworks-deploy/answers ;; *) dir=/run/user/$uid/agentworks-deploy-answers ;; esac
[ -f "$dir/$1" ] || { echo "the kept answer is gone" >&2; exit 1; }
tail -c "+$2" "$dir/$1" | head -c "$3"
[ -z "$4" ] || rm -f "$dir/$1"
`

// readOrFetch reads the answer in output, or the pages of one that was kept.
func readOrFetch(ctx context.Context, ch remote.Channel, output []byte, req Request) (Envelope, error) {
	f, err := findAnswer(output)
	if err != nil {
		return Envelope{}, err
	}
	if f.kept != "" {
		if req.AnswerLimit == 0 {
			return Envelope{}, errors.New("the answer was kept on the host, which nobody asked for")
		}
		if err := f.fetch(ctx, ch, req.AnswerLimit); err != nil {
			return Envelope{}, err
		}
	}
	return f.read(req.Encoding)
}

// fetch gets the pages of a kept answer. All of them together are proved by the
// trailer's length and digest.
func (f *found) fetch(ctx context.Context, ch remote.Channel, limit int) error {
	for len(f.line) < f.length {
		want, last := min(limit, f.length-len(f.line)), ""
		if len(f.line)+want == f.length {
			last = "last"
		}
		page := &capped{left: want}
		stderr := &tail{w: io.Discard}
		exit, err := ch.Run(ctx, remote.Cmd{Argv: sh(pageScript, f.kept, strconv.Itoa(len(f.line)+1), strconv.Itoa(want), last), Stdout: page, Stderr: stderr})
		if err == nil && (exit != 0 || page.Len() != want) {
			err = report.Coded(report.ExitUnfinished, "%d bytes of %d came (exit %d) %s", page.Len(), want, exit, bytes.TrimSpace(stderr.end))
		}
		if err != nil {
			return fmt.Errorf("fetch the answer from byte %d of %d: %w", len(f.line), f.length, err)
		}
		f.line = append(f.line, page.Bytes()...)
	}
	return nil
}
