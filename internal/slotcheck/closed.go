package slotcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

// closedFile wants a file of the service's to be its alone. One that is not
// there, or that the service may not look at, is other rows' business.
func (a *audit) closedFile(file, show string) []report.Row {
	var st unix.Stat_t
	acc, err := readAccess(file)
	if err != nil || unix.Lstat(file, &st) != nil {
		return nil
	}
	if acc.Kind != unix.S_IFREG {
		return warn(show + " is not a regular file, so whether it is closed is not known")
	}
	var rows []report.Row
	if acc.UID != a.service.UID {
		rows = append(rows, fail(fmt.Sprintf("%s is owned by %s, not %s", show, a.userName(acc.UID), a.layout.Product), hostFix("chown", a.layout.Product, file))...)
	}
	mode := acc.Mode
	if acc.ACL != nil {
		rows = append(rows, fail(fmt.Sprintf("%s has an ACL %s", show, a.entryNames(acc.ACL)), hostFix(append(acc.bare(0o600), file)...))...)
		mode = mode&^0o777 | 0o600
	}
	if mode != 0o600 {
		rows = append(rows, fail(fmt.Sprintf("%s has group %s and mode %04o, not 0600", show, a.groupName(acc.GID), mode), hostFix("chmod", "0600", file))...)
	}
	if st.Nlink > 1 {
		rows = append(rows, warn(fmt.Sprintf("%s has %d names; to see where, on the host: find / -xdev -samefile %s", show, st.Nlink, report.Quote(file)))...)
	}
	return rows
}

// sharedLimit bounds how many entries of the shared folders an audit looks at.
const sharedLimit = 100_000

// sharedFiles looks in the shared folders for what belongs to slots: files of
// one that holds nobody, which the next holder owns, and programs that run as
// whoever made them, since those outlive their slot's holder.
func (a *audit) sharedFiles(ctx context.Context, free []subject) []report.Row {
	own, armed := map[uint32]int{}, 0
	looked := 0
	slot := map[uint32]bool{}
	for _, s := range a.slots {
		slot[s.Account.UID] = true
	}
	for _, s := range free {
		slot[s.Account.UID] = true
	}
	for _, name := range hosts.SharedFolders() {
		err := filepath.WalkDir(filepath.Join(a.docs, name), func(p string, e fs.DirEntry, err error) error {
			if looked++; looked > sharedLimit || ctx.Err() != nil {
				return fs.SkipAll
			}
			if err != nil || e.IsDir() { // closed to the service or gone: nothing that slots share
				return nil
			}
			var st unix.Stat_t
			if unix.Lstat(p, &st) != nil {
				return nil
			}
			if slot[st.Uid] {
				own[st.Uid]++
			}
			if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 && (slot[st.Uid] || st.Uid == a.service.UID) {
				armed++
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unknown(fmt.Sprintf("<docs>/%s cannot be looked at: %v", name, cause(err)))
		}
	}
	var rows []report.Row
	if armed > 0 {
		rows = fail(fmt.Sprintf("%d file(s) of slots in the shared folders are setuid or setgid: whoever runs them is that slot", armed), a.provisionFix())
	}
	for _, s := range free {
		if n := own[s.Account.UID]; n > 0 {
			rows = append(rows, report.Row{State: report.Warn, Slot: s.Slot,
				Detail: fmt.Sprintf("it holds nobody, and %d file(s) in the shared folders are still its own: the next holder owns them", n)})
		}
	}
	if looked > sharedLimit {
		rows = append(rows, warn(fmt.Sprintf("the shared folders hold more than %d entries; the others were not looked at", sharedLimit))...)
	}
	return rows
}
