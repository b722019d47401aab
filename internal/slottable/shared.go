package slottable

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// sharedLimit bounds how many entries of the shared folders one verb looks at.
const sharedLimit = 200_000

var errLimit = errors.New("enough")

// disarm looks in the shared folders for files of slot. A program there that is
// setuid would give whoever starts it the slot, and with it the next holder's
// files, so it loses that; what else there is stays, and is told: the next
// holder owns it.
func (r *run) disarm(ctx context.Context, slot string) error {
	own, _ := r.account(slot)
	docs, err := safefs.OpenDir(r.at(r.Docs))
	if err != nil {
		return err
	}
	defer docs.Close()
	looked, files, armed := 0, 0, 0
	for _, name := range hosts.SharedFolders() {
		dir, err := docs.Own(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EXDEV):
			r.row(report.Warn, "shared-files", slot, "not looked at: %v", err)
			continue
		case err != nil:
			return err
		}
		err = dir.Walk(ctx, func(e *safefs.Entry) error {
			if looked++; looked > sharedLimit {
				return errLimit
			}
			if e.Stat.IsDir() || e.Stat.UID != own.uid && e.Stat.GID != own.gid {
				return nil
			}
			if e.Stat.UID == own.uid {
				files++
			}
			diff := safefs.Disarmed(e.Stat).Diff(e.Stat)
			if !r.Plan {
				diff, err = e.Ensure(safefs.Disarmed)
			}
			if diff != "" {
				armed++
			}
			if errors.Is(err, unix.EXDEV) { // a file that something is mounted on
				return nil
			}
			return err
		})
		dir.Close()
		if err != nil && !errors.Is(err, errLimit) {
			return err
		}
	}
	if armed > 0 {
		r.did("shared-files", slot, "setuid and setgid taken from %s of %s in the shared folders", count(armed, "file", "files"), slot)
	}
	if files > 0 {
		r.row(report.Warn, "shared-files", slot, "%s in the shared folders of %s stay %s's: whoever holds it next owns them; to see them, on the host: find %s -xdev -user %s -not -path '*/_users/*'",
			count(files, "file", "files"), r.Docs, slot, report.Quote(r.Docs), slot)
	}
	if looked > sharedLimit {
		r.row(report.Warn, "shared-files", slot, "the shared folders hold more than %d files; the others were not looked at", sharedLimit)
	}
	return nil
}
