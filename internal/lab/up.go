package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// UpOptions say how a lab comes up.
type UpOptions struct {
	// Init is the command line of a program that calls Init and nothing else:
	// this very program, run again, with its hidden verb.
	Init []string
	// Reference makes the reference platform in the lab, once.
	Reference bool
	// Progress is told what takes long.
	Progress func(string)
}

// How long the parts of a start may take on a busy machine.
const (
	setupWait = 30 * time.Second
	bootWait  = 90 * time.Second
)

// Up makes the lab's files where they are missing, starts it where it is down,
// and waits until its systemd has nothing left to start. failed names the units
// that did not start; the lab is up all the same.
func (l *Lab) Up(ctx context.Context, o UpOptions) (failed []string, err error) {
	lock, err := l.lock(ctx, "up")
	if err != nil {
		return nil, err
	}
	defer lock.release()
	p, err := l.process()
	if err == nil && !p.becomesSystemd(setupWait) {
		// Its up was killed before it gave the orders.
		p.Close()
		if _, err = l.end(ctx, false); err == nil {
			err = ErrNotUp
		}
	}
	if errors.Is(err, ErrNotUp) {
		p, err = l.start(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if failed, err = l.waitBooted(ctx, p); err != nil {
		return nil, err
	}
	if o.Reference {
		err = l.makeReference(ctx)
	}
	return failed, err
}

// start boots a lab that is down.
func (l *Lab) start(ctx context.Context, o UpOptions) (*process, error) {
	r, err := l.prepare(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	// What the last life left of itself, if it ended badly.
	if err := l.removeCgroup(ctx); err != nil {
		return nil, err
	}
	group, err := l.cgroup()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, fmt.Errorf("make the cgroup of lab %s: %w", l.Name, err)
	}
	first, err := l.firstProcess(o.Init, group)
	if err != nil {
		return nil, fmt.Errorf("start lab %s: %w", l.Name, err)
	}
	defer first.close()
	if err := first.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the first process of lab %s: %w", l.Name, err)
	}
	first.closeTheirs()
	// The process waits for its orders and ends when we die before giving them:
	// so it is on record before it does anything.
	known, err := describe(first.cmd.Process.Pid)
	if err == nil {
		err = writeJSON(l.path("running.json"), known)
	}
	if err == nil {
		err = json.NewEncoder(first.order).Encode(l.boot(r))
	}
	first.order.Close()
	if err == nil {
		err = readAnswer(first.answer)
	}
	if err != nil {
		_ = first.cmd.Process.Kill()
		_ = first.cmd.Wait()
		return nil, fmt.Errorf("start lab %s: %w (its first words: %s)", l.Name, err, l.Log())
	}
	p, err := l.process()
	// The lab outlives us; waiting is its next parent's work.
	return p, errors.Join(err, first.cmd.Process.Release())
}

// firstProcess is a lab's first process before it starts.
type firstProcess struct {
	cmd    *exec.Cmd
	order  *os.File   // its orders are written here
	answer *os.File   // it says here how it went
	theirs []*os.File // what only the process needs
}

func (l *Lab) firstProcess(argv []string, group string) (f *firstProcess, err error) {
	f = &firstProcess{cmd: exec.Command(argv[0], argv[1:]...)}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	open := func(file *os.File, failed error) *os.File {
		err = errors.Join(err, failed)
		f.theirs = append(f.theirs, file)
		return file
	}
	log := open(os.OpenFile(l.Log(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600))
	dir := open(os.Open(group))
	orderIn, order, failed := os.Pipe()
	f.order = order
	open(orderIn, failed)
	answer, answerOut, failed := os.Pipe()
	f.answer = answer
	open(answerOut, failed)
	if err != nil {
		return nil, err
	}
	f.cmd.Dir = "/"
	f.cmd.Stdout, f.cmd.Stderr = log, log
	f.cmd.ExtraFiles = []*os.File{orderIn, answerOut}
	f.cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:      true, // the terminal's signals are not for it
		UseCgroupFD: true,
		CgroupFD:    int(dir.Fd()),
		Cloneflags:  unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
	}
	return f, nil
}

// Closing a file twice, or none, is no harm.
func (f *firstProcess) closeTheirs() {
	for _, file := range f.theirs {
		file.Close()
	}
}

func (f *firstProcess) close() {
	f.closeTheirs()
	f.order.Close()
	f.answer.Close()
}

// readAnswer reads what Init says: answerOK, or why it could not go on.
func readAnswer(answer *os.File) error {
	if err := answer.SetReadDeadline(time.Now().Add(setupWait)); err != nil {
		return err
	}
	text, err := io.ReadAll(answer)
	if err != nil {
		return fmt.Errorf("wait for its first process: %w", err)
	}
	switch said := strings.TrimSpace(string(text)); said {
	case answerOK:
		return nil
	case "":
		return errors.New("its first process ended without a word")
	default:
		return errors.New(strings.TrimPrefix(said, answerOK))
	}
}

// prepare makes the lab's files. Without a record they are remains.
func (l *Lab) prepare(ctx context.Context, progress func(string)) (record, error) {
	if err := l.dropRemoved(); err != nil {
		return record{}, err
	}
	r, err := l.readRecord()
	if err == nil {
		if _, err := os.Stat(filepath.Join(l.store.Cache, r.RootFS)); err != nil && !r.Copied {
			return r, fmt.Errorf("lab %s stands on a root file system that is gone (%w); make it anew: agentworks-deploy lab reset --name %s", l.Name, err, l.Name)
		}
		return r, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if r.RootFS, err = l.store.rootFS(ctx, progress); err != nil {
		return r, err
	}
	if err := l.removeFiles(); err != nil {
		return r, err
	}
	if err := os.Mkdir(l.Dir(), 0o700); err != nil {
		return r, err
	}
	folders := []string{l.path("root"), l.path("upper"), l.path("work")}
	for _, folder := range plainFolders() {
		folders = append(folders, l.plain(folder))
	}
	for _, folder := range folders {
		mode := os.FileMode(0o755)
		if folder == l.plain("var/tmp") {
			mode = os.ModeSticky | 0o777
		}
		if err := errors.Join(os.Mkdir(folder, 0o700), os.Chmod(folder, mode)); err != nil {
			return r, err
		}
	}
	if r.Copied, err = onOverlay(l.Dir()); err != nil {
		return r, err
	}
	if r.Copied {
		progress("copying the root file system, because this machine's own root is an overlay")
		from := filepath.Join(l.store.Cache, r.RootFS) + "/."
		if said, err := runTied(exec.CommandContext(ctx, "cp", "-a", "--reflink=auto", from, l.path("root"))); err != nil {
			return r, fmt.Errorf("copy the root file system: %w: %s", err, lastLines(said, 3))
		}
	}
	return r, writeJSON(l.path("lab.json"), r)
}

// onOverlay says whether path lies on an overlay, which cannot be the upper
// layer of another.
func onOverlay(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, fmt.Errorf("ask for the file system of %s: %w", path, err)
	}
	return st.Type == unix.OVERLAYFS_SUPER_MAGIC, nil
}

// waitBooted waits until the lab's systemd has nothing left to start.
func (l *Lab) waitBooted(ctx context.Context, p *process) (failed []string, err error) {
	ctx, stop := context.WithTimeout(ctx, bootWait)
	defer stop()
	for {
		// systemctl does the waiting, as soon as systemd listens to it.
		state, err := l.ask(ctx, "systemctl", "is-system-running", "--wait")
		switch {
		case state == "running":
			return nil, nil
		case state == "degraded":
			return l.failedUnits(ctx)
		case ctx.Err() != nil:
			return nil, fmt.Errorf("wait for systemd in lab %s, which says %q: %w", l.Name, state, errors.Join(ctx.Err(), err))
		case p.ended(20 * time.Millisecond):
			return nil, fmt.Errorf("lab %s ended while it started: see %s", l.Name, l.Log())
		}
	}
}

func (l *Lab) failedUnits(ctx context.Context) (names []string, err error) {
	units, err := l.ask(ctx, "systemctl", "list-units", "--state=failed", "--plain", "--no-legend", "--no-pager")
	if err != nil {
		return nil, fmt.Errorf("ask lab %s for its failed units: %w", l.Name, err)
	}
	for line := range strings.Lines(units) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	return names, nil
}

// ask runs a program of the lab as root and returns its standard output.
func (l *Lab) ask(ctx context.Context, argv ...string) (string, error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := l.Start(cmd, "root"); err != nil {
		return "", err
	}
	err := cmd.Wait()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(out.String()), err
}
