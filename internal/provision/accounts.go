package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// fileLimit bounds account files that are read as a whole; 100,000 accounts are
// about 8 MiB.
const fileLimit = 64 << 20

// accounts is the first step: while it only looks it also finds everything that
// forbids the run, and nothing has been changed then.
func (r *run) accounts(ctx context.Context) (findings, error) {
	if err := r.survey(ctx); err != nil {
		return findings{}, err
	}
	var f findings
	ro := r.roster
	if ro.newShared {
		f.add("", "make the group %s, gid %d", ro.shared.Name, ro.shared.GID)
	}
	for i, m := range ro.slots {
		if m.newGroup {
			f.add(m.name, "make the group <slot>, %s", idText("gid", m.gid, i))
		}
		if m.newUser {
			f.add(m.name, "make the account <slot>, %s, home %s, shell %s", idText("uid", m.uid, i), r.l.SlotHome("<slot>"), accounts.SlotShell)
		}
	}
	for _, j := range ro.joins {
		switch {
		case j.user == j.group || j.group == ro.shared.Name && j.user != ro.service.Name:
			f.add(j.user, "add <slot> to the group %s", j.group)
		case j.group == ro.shared.Name:
			f.add("", "add %s to the group %s", j.user, j.group)
		default:
			f.add(j.group, "add %s to the group <slot>", j.user)
		}
	}
	r.logins(&f)
	for _, file := range shadowFiles() {
		lacks, err := r.shadowless(file)
		if err != nil {
			return f, err
		}
		for _, name := range lacks {
			f.add(name, "add the line of <slot> that %s lacks", file.path)
		}
	}
	leftovers, err := r.leftovers()
	if err != nil {
		return f, err
	}
	if len(leftovers) > 0 {
		f.add("", "remove %d temporary files in /etc that a killed systemd-sysusers left", len(leftovers))
	}
	f.apply = r.makeAccounts
	return f, nil
}

// idText keeps the text of consecutive ids equal, so that they share one row.
func idText(kind string, id uint32, i int) string {
	if base := id - uint32(i) - 1; id > uint32(i) && base%blockSize == 0 {
		return fmt.Sprintf("%s %d + its number", kind, base)
	}
	return fmt.Sprintf("%s %d", kind, id)
}

// survey takes a new look at the accounts.
func (r *run) survey(ctx context.Context) error {
	db := r.db
	r.db = nil
	if db == nil {
		var err error
		if db, err = r.load(ctx); err != nil {
			return err
		}
	}
	s, err := r.surveyor(db)
	if err != nil {
		return err
	}
	r.roster, err = s.compare(ctx)
	return err
}

func (r *run) surveyor(db *accounts.Database) (*survey, error) {
	passwd, err := r.sys.read("/etc/passwd", fileLimit)
	if err != nil {
		return nil, err
	}
	shadow, err := r.sys.read("/etc/shadow", fileLimit)
	if err != nil {
		return nil, err
	}
	local := namesIn(passwd)
	localGroups, err := r.lines("/etc/group")
	if err != nil {
		return nil, err
	}
	taken := standing()
	for _, file := range []string{"/etc/login.defs", "/etc/subuid", "/etc/subgid"} {
		data, err := r.sys.read(file, fileLimit)
		if err != nil {
			return nil, err
		}
		if file == "/etc/login.defs" {
			taken = append(taken, loginDefs(data)...)
		} else {
			taken = append(taken, subordinate(file, data)...)
		}
	}
	return &survey{
		layout: r.l, block: r.Host.Slots.IDs, db: db, taken: taken,
		addIDs: func(ctx context.Context, ids []uint32) error { return db.AddIDs(ctx, r.sys.Getent, ids) },
		local:  func(name string) bool { return local[name] }, localGroup: func(name string) bool { return localGroups[name] },
		unlocked: accounts.Unlocked(passwd, shadow),
	}, nil
}

// makeAccounts looks once more when the account files are free and makes what is
// missing then: a tool that a killed run started may have gone on meanwhile.
func (r *run) makeAccounts(ctx context.Context) error {
	if err := r.clearLeftovers(ctx); err != nil {
		return err
	}
	if err := r.survey(ctx); err != nil {
		return err
	}
	if r.roster.missing() || len(r.roster.joins) > 0 {
		if err := r.addAccounts(ctx); err != nil {
			return err
		}
	}
	if err := r.closeLogins(ctx); err != nil {
		return err
	}
	return r.repairShadow(ctx)
}

// addAccounts makes everything in one batch. systemd-sysusers answers 0 whatever
// it did, so its words are kept for the case that reading back finds a gap.
func (r *run) addAccounts(ctx context.Context) error {
	if _, ok := r.sys.find("systemd-sysusers"); !ok {
		return r.addOneByOne(ctx)
	}
	said, err := r.sys.accountTool(ctx, sysusersConfig(r.l, r.roster), "systemd-sysusers", "-")
	if err != nil {
		return err
	}
	asked := r.roster
	if err := r.survey(ctx); err != nil {
		return fmt.Errorf("after systemd-sysusers: %w", err)
	}
	if gap := gapsBetween(asked, r.roster); gap != "" {
		return report.Coded(report.ExitState, "systemd-sysusers said it was done, but %s; it said: %s", gap, strings.TrimSpace(said))
	}
	return nil
}

// gapsBetween says what of asked is not there, or is there with other ids.
func gapsBetween(asked, found *roster) string {
	if found.newShared || found.shared.GID != asked.shared.GID {
		return fmt.Sprintf("the group %s is not there with gid %d", asked.shared.Name, asked.shared.GID)
	}
	for i, m := range asked.slots {
		if f := found.slots[i]; f.newUser || f.newGroup || f.uid != m.uid || f.gid != m.gid {
			return fmt.Sprintf("the account %s is not there with uid %d and gid %d", m.name, m.uid, m.gid)
		}
	}
	if len(found.joins) > 0 {
		return fmt.Sprintf("%s is not in the group %s", found.joins[0].user, found.joins[0].group)
	}
	return ""
}

// sysusersConfig is what is missing, as sysusers.d(5) lines.
func sysusersConfig(l hosts.Layout, ro *roster) []byte {
	var b bytes.Buffer
	if ro.newShared {
		fmt.Fprintf(&b, "g %s %d\n", ro.shared.Name, ro.shared.GID)
	}
	for _, m := range ro.slots {
		if m.newGroup {
			fmt.Fprintf(&b, "g %s %d\n", m.name, m.gid)
		}
		if m.newUser {
			fmt.Fprintf(&b, "u %s %d:%d %q %s %s\n", m.name, m.uid, m.gid, slotComment, l.SlotHome(m.name), accounts.SlotShell)
		}
	}
	for _, j := range ro.joins {
		fmt.Fprintf(&b, "m %s %s\n", j.user, j.group)
	}
	return b.Bytes()
}

// addOneByOne is for hosts without systemd-sysusers. Subordinate ids are turned
// off: slots need none, and handing them out fails where they are used up (case
// B01).
func (r *run) addOneByOne(ctx context.Context) error {
	id := func(n uint32) string { return fmt.Sprint(n) }
	if ro := r.roster; ro.newShared {
		if err := r.account(ctx, "groupadd", "-g", id(ro.shared.GID), ro.shared.Name); err != nil {
			return err
		}
	}
	for _, m := range r.roster.slots {
		if m.newGroup {
			if err := r.account(ctx, "groupadd", "-g", id(m.gid), m.name); err != nil {
				return err
			}
		}
		if m.newUser {
			err := r.account(ctx, "useradd", "-M", "-N", "-u", id(m.uid), "-g", id(m.gid), "-d", r.l.SlotHome(m.name), "-s", accounts.SlotShell,
				"-c", slotComment, "-K", "SUB_UID_COUNT=0", "-K", "SUB_GID_COUNT=0", m.name)
			if err != nil {
				return err
			}
		}
	}
	var users []string
	groups := map[string][]string{}
	for _, j := range r.roster.joins {
		if groups[j.user] == nil {
			users = append(users, j.user)
		}
		groups[j.user] = append(groups[j.user], j.group)
	}
	for _, user := range users {
		if err := r.account(ctx, "usermod", "-a", "-G", strings.Join(groups[user], ","), user); err != nil {
			return err
		}
	}
	return nil
}

// lockPatience is how long another program may hold the account files.
const lockPatience = 10 * time.Second

// account makes one change, again for a while when another program holds the
// files, and for no other reason (case B03).
func (r *run) account(ctx context.Context, name string, args ...string) error {
	until := time.Now().Add(lockPatience)
	for {
		said, err := r.sys.accountTool(ctx, nil, name, args...)
		if err == nil || !strings.Contains(said, "cannot lock") {
			return err
		}
		if time.Now().After(until) {
			file := "/etc/passwd.lock"
			if named := regexp.MustCompile(`/etc/[a-z]+\.lock`).FindString(said); named != "" {
				file = named
			}
			return report.Coded(report.ExitLocked, "%w; next, on the host, where no program is at work on the accounts: rm %s", err, file)
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// pause lets whoever holds a lock go on.
func pause(ctx context.Context) error {
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// accountsLock keeps runs for two products from choosing the same ids, from the
// first look until all is read back.
func (r *run) accountsLock(ctx context.Context) (*safefs.Lock, error) {
	runDir, err := safefs.OpenDir(r.sys.at("/run"))
	if err != nil {
		return nil, err
	}
	defer runDir.Close()
	dir, _, err := runDir.EnsureDir("agentworks-deploy", safefs.Exact(0, 0, 0o700))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	lock, err := safefs.Acquire(ctx, r.sys.at("/run/agentworks-deploy/accounts.lock"), r.holder(), lockPatience)
	var locked *safefs.LockedError
	if errors.As(err, &locked) {
		return nil, report.Coded(report.ExitLocked, "%w", err)
	}
	return lock, err
}

func (r *run) lines(file string) (map[string]bool, error) {
	data, err := r.sys.read(file, fileLimit)
	return namesIn(data), err
}

// namesIn are the names that the lines of an account file begin with.
func namesIn(data []byte) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names[name] = true
		}
	}
	return names
}
