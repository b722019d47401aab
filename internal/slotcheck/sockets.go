package slotcheck

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentworks-deploy/internal/report"
)

const (
	// maxSockets bounds how many bytes of socket names one probe is asked about.
	maxSockets = 64 << 10
	// dialDeadline bounds the control from outside.
	dialDeadline = 2 * time.Second
)

// trySockets prints, after the mark $2, each of the sockets $1 that the command
// could connect to: what it takes is to see the name and the right to write.
const trySockets = `printf '%s\n' "$1" | while IFS= read -r s; do
	[ -S "$s" ] && [ -w "$s" ] && printf '%s open %s\n' "$2" "$s"
done
:`

// checkHostSockets proves that a confined command reaches no socket of the
// host: a service's, or that of a user manager of the slot, which would run
// anything for it outside the sandbox. Landlock does not hold that back before
// its ABI 9, so the command must not see them. Below /run all of them count; a
// socket elsewhere is its program's to close, and a WARN.
func checkHostSockets(ctx context.Context, a *audit, s subject) []report.Row {
	data, err := os.ReadFile(filepath.Join(a.sys.Proc, "net/unix"))
	if err != nil {
		return unknown(fmt.Sprintf("the host's sockets cannot be listed: %v", cause(err)))
	}
	targets := a.hostSockets(parseSockets(string(data)), s)
	if len(targets) == 0 {
		return skip("there is no socket to try it on")
	}
	control, err := accepting(ctx, targets)
	if err != nil {
		return unknown(err.Error())
	}
	mark := rand.Text()
	o, err := a.confined(ctx, s, markScript(mark, trySockets), strings.Join(targets, "\n"), mark)
	if err != nil {
		return a.unanswered("", err)
	}
	switch status, started := marked(o.Stdout, mark); {
	case !started:
		return a.nothingProven(o, nil, s)
	case status != "0":
		return unknown("the probe did not come to its end")
	}
	var run, elsewhere []string
	for line := range strings.Lines(o.Stdout) {
		name, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), mark+" open ")
		switch {
		case !ok || !slices.Contains(targets, name):
		case inRun(name):
			run = append(run, name)
		default:
			elsewhere = append(elsewhere, a.shown(name))
		}
	}
	if len(run) > 0 {
		return []report.Row{{State: report.Fail, Detail: socketList(run) + " open to a confined command",
			Cause: a.leaks(), Fix: a.deployFix()}}
	}
	below := len(slices.DeleteFunc(targets, func(name string) bool { return !inRun(name) }))
	rows := pass(fmt.Sprintf("none of %d socket(s) below /run is there; %s accepts from outside", below, control))
	if len(elsewhere) > 0 {
		rows = append(rows, warn(socketList(elsewhere)+" open to a confined command; whose it is must know whom it serves")...)
	}
	return rows
}

func socketList(names []string) string {
	text := names[0]
	if len(names) > 1 {
		text += fmt.Sprintf(" and %d more", len(names)-1)
	}
	if len(names) == 1 {
		return text + " is"
	}
	return text + " are"
}

// hostSockets leaves out what belongs to users: their trees and the slots'
// folders, a /tmp, and the docker that slotctl gives to this slot.
func (a *audit) hostSockets(all []string, s subject) []string {
	docker := fmt.Sprintf("/run/user/%d/docker.sock", s.Account.UID)
	own := []string{a.docs, resolve(a.docs), a.layout.SlotsRoot(), resolve(a.layout.SlotsRoot()), "/tmp", "/dev/shm"}
	var targets []string
	size := 0
	for _, name := range all {
		if slices.ContainsFunc(own, func(root string) bool { return within(name, root) }) ||
			a.config.SlotDocker && name == docker || size+len(name) >= maxSockets {
			continue
		}
		size += len(name) + 1
		targets = append(targets, name)
	}
	return targets
}

func inRun(name string) bool { return within(name, "/run") || within(name, "/var/run") }

// accepting is the control: the first of the sockets that takes a connection of
// this process, outside every sandbox.
func accepting(ctx context.Context, targets []string) (string, error) {
	dialer := net.Dialer{Timeout: dialDeadline}
	for _, name := range targets {
		if !inRun(name) {
			continue
		}
		conn, err := dialer.DialContext(ctx, "unix", name)
		if err == nil {
			return name, conn.Close()
		}
	}
	return "", errors.New("no socket below /run accepts a connection from outside either")
}

// parseSockets reads the names of /proc/net/unix on which somebody listens or
// receives, those below /run first, each once and sorted. A name that a probe
// cannot be told is left out: only an account that may make names below /run
// could make one there.
func parseSockets(text string) []string {
	const listens, datagram = 0x10000, "0002"
	var run, others []string
	for line := range strings.Lines(text) {
		// Num RefCount Protocol Flags Type St Inode Path
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 7)
		if len(fields) != 7 {
			continue
		}
		// The inode is right-aligned, so blanks may stand before it.
		_, name, _ := strings.Cut(strings.TrimLeft(fields[6], " "), " ")
		flags, err := strconv.ParseUint(fields[3], 16, 32)
		if err != nil || flags&listens == 0 && fields[4] != datagram || !strings.HasPrefix(name, "/") || !printable(name) {
			continue
		}
		if inRun(name) {
			run = append(run, name)
		} else {
			others = append(others, name)
		}
	}
	slices.Sort(run)
	slices.Sort(others)
	return slices.Compact(append(slices.Compact(run), slices.Compact(others)...))
}
