package slotcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/shell"
)

// sudoFault is what keeps sudo itself from working, whatever the rule says, and
// what mends that; it says nothing where sudo is as it should be. Line is what sudo
// said. Provisioning would find its rule in place and do nothing.
func (a *audit) sudoFault(line string) (refusal, bool) {
	program := resolve(a.sys.Sudo)
	r := func(detail string, fix *report.Fix) (refusal, bool) {
		if line != "" {
			detail = a.hide.words(line)
		}
		return refusal{Detail: detail, Cause: "sudo itself does not work", Fix: fix}, true
	}
	acc, err := readAccess(program)
	switch {
	case err != nil:
		return r(fmt.Sprintf("%s: %v", program, cause(err)), noFix(report.OnHost, "install sudo"))
	case acc.UID != 0:
		// A chown takes setuid away, so both are one fix.
		return r(fmt.Sprintf("%s is owned by %s", program, a.userName(acc.UID)), hostFix("sh", "-c", `chown root:root "$1" && chmod 4755 "$1"`, "sudo", program))
	case acc.Mode&unix.S_ISUID == 0, acc.Mode&permX == 0:
		return r(fmt.Sprintf("%s has mode %04o", program, acc.Mode), hostFix("chmod", "4755", program))
	}
	var mount unix.Statfs_t
	if unix.Statfs(program, &mount) == nil && mount.Flags&unix.ST_NOSUID != 0 {
		return r(program+" is on a nosuid mount", noFix(report.OnHost, "mount the file system that holds "+program+" without nosuid"))
	}
	for _, name := range []string{"sudoers", "sudoers.d", "sudo.conf"} {
		file := filepath.Join(a.sys.Etc, name)
		acc, err := readAccess(file)
		switch {
		case name == "sudo.conf" && !strings.Contains(line, file): // sudo goes on without this one
		case err == nil && acc.UID != 0:
			return r(fmt.Sprintf("%s is owned by %s", file, a.userName(acc.UID)), hostFix("chown", "root", file))
		case err == nil && acc.GID != 0 && acc.Mode&0o020 != 0:
			return r(fmt.Sprintf("%s has group %s", file, a.groupName(acc.GID)), hostFix("chgrp", "root", file))
		case err == nil && acc.Mode&0o022 != 0:
			return r(fmt.Sprintf("%s can be written by others (mode %04o)", file, acc.Mode), hostFix("chmod", "go-w", file))
		case name != "sudo.conf" && errors.Is(err, fs.ErrNotExist):
			return r(file+" does not exist", noFix(report.OnHost, "put back "+file+" of the package sudo: dpkg or rpm knows what it held"))
		}
	}
	return refusal{}, false
}

// noStart says that err is about sudo as a program that could not be started.
func noStart(err error) bool {
	p, ok := errors.AsType[*fs.PathError](err)
	return ok && p.Path == shell.Sudo
}
