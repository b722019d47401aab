package provision

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/report"
)

func TestIDsAreTheFirstFreeBlock(t *testing.T) {
	for name, c := range map[string]struct {
		passwd, group string
		ids           int
		want          int // uid of slot01
	}{
		"nobody there":               {want: 70001},
		"an account in the block":    {passwd: "bob:x:70500:100::/:/bin/sh\n", want: 71001},
		"a group in the block":       {group: "bobs:x:70999:\n", want: 71001},
		"only x999":                  {passwd: "bob:x:71999:100::/:/bin/sh\nann:x:70000:100::/:/bin/sh\n", want: 72001},
		"the host file says":         {ids: 75000, want: 75001},
		"its own shared group is in": {group: "slotshared:x:73000:\n", want: 73001},
		"its own slots are in": {passwd: "slot02:x:74002:74002::/srv/svc/slots/home/slot02:/usr/sbin/nologin\n",
			group: "slot02:x:74002:\n", want: 74001},
		"slots with older ids keep them": {passwd: "slot02:x:1002:1002::/srv/svc/slots/home/slot02:/usr/sbin/nologin\n",
			group: "slot02:x:1002:\n", want: 70001},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScratch(t)
			s.append("/etc/passwd", c.passwd)
			s.append("/etc/group", c.group)
			s.host.Slots.IDs = c.ids
			s.provision()
			line := fmt.Sprintf("slot01:x:%d:%d:", c.want, c.want)
			if got := s.read("/etc/passwd"); !strings.Contains(got, line) || !strings.Contains(got, c.passwd) {
				t.Errorf("passwd lacks %q: %s", line, got)
			}
			if strings.Count(s.read("/etc/passwd"), "\nslot02:") != 1 {
				t.Error("slot02 twice")
			}
		})
	}
}

// TestB01NoRoomIsSaidBeforeAnythingIsMade: whoever else may use an id of the
// block is named, with the first new account and what to do.
func TestB01NoRoomIsSaidBeforeAnythingIsMade(t *testing.T) {
	for name, c := range map[string]struct {
		file, content string
		ids           int
		want          string
	}{
		"subordinate user ids":  {"/etc/subuid", "root:65536:1000000\n", 0, `"root:65536:1000000" of /etc/subuid`},
		"subordinate group ids": {"/etc/subgid", "bob:70999:1\n", 0, "/etc/subgid"},
		"useradd's range":       {"/etc/login.defs", "UID_MIN 1000\nUID_MAX 70000\n", 0, "UID_MIN-UID_MAX 1000-70000"},
		"groupadd's range":      {"/etc/login.defs", "GID_MAX\t\t 100000\n", 0, "GID_MIN-GID_MAX"},
		"system accounts":       {"/etc/login.defs", "SYS_UID_MIN 70990\nSYS_UID_MAX 70999\n", 0, "SYS_UID"},
		"an account":            {"/etc/passwd", "root:x:0:0::/:/bin/sh\nsvc:x:4990:4990::/:/bin/sh\nbob:x:75999:4990::/:/bin/sh\n", 75000, "the account bob (uid 75999)"},
		"systemd's own":         {"/etc/subuid", "", 61000, "dynamic users"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScratch(t)
			s.host.Slots.Count = 20
			s.host.Slots.IDs = c.ids
			s.file(c.file, c.content)
			s.refused(report.ExitState, "slot01 and the other new accounts", c.want, "slots.ids")
		})
	}
	t.Run("used up elsewhere is no matter", func(t *testing.T) {
		s := newScratch(t)
		s.file("/etc/subuid", "root:1000000:1000000000\n")
		s.file("/etc/login.defs", "UID_MAX 60000\nSUB_UID_MIN 100000\nSUB_UID_MAX 600100000\n")
		s.provision()
	})
	t.Run("nothing to add is no matter", func(t *testing.T) {
		s := newScratch(t)
		s.provision()
		s.file("/etc/subuid", "root:65536:1000000\n")
		s.provision()
	})
	t.Run("every block", func(t *testing.T) {
		s := newScratch(t)
		for id := 70000; id < 80000; id += 1000 {
			s.append("/etc/group", fmt.Sprintf("g%d:x:%d:\n", id, id))
		}
		s.refused(report.ExitState, "no block of 1000 free ids", "slots.ids")
	})
}

func TestAccountsInConflict(t *testing.T) {
	slot := func(n, uid, gid int) string {
		return fmt.Sprintf("slot%02d:x:%d:%d::/srv/svc/slots/home/slot%02d:/usr/sbin/nologin\n", n, uid, gid, n)
	}
	for name, c := range map[string]struct{ passwd, group, want string }{
		"a slot with root's uid":          {slot(1, 0, 70001), "slot01:x:70001:\n", "uid 0"},
		"another primary group":           {slot(1, 70001, 100), "users:x:100:\nslot01:x:70001:\n", "primary group of slot01"},
		"a primary group of another name": {slot(1, 70001, 100), "users:x:100:\n", "users"},
		"the uid of somebody else":        {slot(1, 4990, 70001), "slot01:x:70001:\n", "share uid 4990"},
		"the gid of somebody else":        {slot(1, 70001, 70001), "slot01:x:70001:\nbobs:x:70001:\n", "share gid 70001"},
		"a slot in another slot's group":  {slot(1, 70001, 70001) + slot(2, 70002, 70002), "slot01:x:70001:slot02\nslot02:x:70002:\n", "gpasswd -d slot02 slot01"},
		"a slot in the service's group":   {slot(1, 70001, 70001), "slot01:x:70001:\nalias:x:4990:slot01\n", "share gid 4990"},
		"a group with strangers":          {"", "slot01:x:70001:bob\n", "holds bob"},
		"the service is root":             {"x", "", "uid 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScratch(t)
			if c.passwd == "x" {
				s.file("/etc/passwd", "root:x:0:0::/:/bin/sh\nsvc:x:0:4990::/:/bin/sh\n")
			} else {
				s.append("/etc/passwd", c.passwd)
			}
			s.append("/etc/group", c.group)
			s.refused(report.ExitState, c.want)
		})
	}
}

func TestB11AccountOfADirectoryServiceIsKnown(t *testing.T) {
	s := newScratch(t)
	sys := s.system()
	files := sys.Getent
	sys.Getent = func(ctx context.Context, database string, keys ...string) ([]byte, error) {
		out, err := files(ctx, database, keys...)
		for _, k := range keys {
			if k == "slot02" && database == "passwd" {
				out = append(out, "slot02:*:800002:800002::/home/ldap/slot02:/bin/sh\n"...)
			}
		}
		return out, err
	}
	_, err := Run(t.Context(), sys, s.request(false))
	if report.CodeOf(err) != report.ExitState || !strings.Contains(err.Error(), "slot02 (from a source of nsswitch.conf other than /etc/passwd)") {
		t.Errorf("%v", err)
	}
}

func TestLoginShellIsPutRight(t *testing.T) {
	s := newScratch(t)
	s.provision()
	s.file("/etc/passwd", strings.Replace(s.read("/etc/passwd"), "home/slot02:/usr/sbin/nologin", "home/slot02:/bin/sh", 1))
	s.program("usermod", fmt.Sprintf(`sed -i "/^$3:/s#:[^:]*\$#:$2#" %s/etc/passwd`, s.root))
	s.provision()
	if got := s.read("/etc/passwd"); strings.Count(got, ":/usr/sbin/nologin") != 3 {
		t.Error(got)
	}
}

// TestSysusersThatLies: it answers 0 whatever it did.
func TestSysusersThatLies(t *testing.T) {
	s := newScratch(t)
	s.program("systemd-sysusers", "echo 'Failed to write: no space' >&2; exit 0")
	_, err := s.run(false)
	if report.CodeOf(err) != report.ExitState || !strings.Contains(err.Error(), "slotshared") || !strings.Contains(err.Error(), "no space") {
		t.Error(err)
	}
}

// TestB03OneByOneWaitsForTheLock: without systemd-sysusers, and only for this
// message.
func TestB03OneByOneWaitsForTheLock(t *testing.T) {
	s := newScratch(t)
	s.program("systemd-sysusers", "")
	s.chmod("/usr/sbin/systemd-sysusers", 0o644)
	s.program("groupadd", fmt.Sprintf(`r=%s
if [ ! -e $r/once ]; then touch $r/once; echo "groupadd: cannot lock /etc/group; try again later." >&2; exit 10; fi
echo "$3:x:$2:" >> $r/etc/group; echo "$3:!::" >> $r/etc/gshadow`, s.root))
	s.program("useradd", fmt.Sprintf(`r=%s
for name; do :; done
case "$*" in *"-K SUB_UID_COUNT=0 -K SUB_GID_COUNT=0 "*) ;; *) exit 9;; esac
echo "$name:x:$4:$6:AgentWorks slot:$8:/usr/sbin/nologin" >> $r/etc/passwd; echo "$name:!:1::::::" >> $r/etc/shadow`, s.root))
	s.program("usermod", fmt.Sprintf(`r=%s
for g in $(echo "$3" | tr , ' '); do sed -i "/^$g:/{s/\$/,$4/;s/:,/:/}" $r/etc/group; done`, s.root))
	s.provision()
	if got := s.read("/etc/group"); !strings.Contains(got, "slotshared:x:70000:svc,slot01,slot02,slot03\n") {
		t.Error(got)
	}
	s.host.Slots.Count = 5
	s.program("groupadd", "echo 'groupadd: something else' >&2; exit 1")
	if _, err := s.run(false); err == nil || !strings.Contains(err.Error(), "something else") {
		t.Error(err)
	}
}

func TestShadowLinesThatAPowerCutTook(t *testing.T) {
	s := newScratch(t)
	s.provision()
	want := []string{s.read("/etc/shadow"), s.read("/etc/gshadow")}
	s.file("/etc/shadow", strings.Replace(want[0], "slot03:!*:20000::::::\n", "", 1))
	s.file("/etc/gshadow", strings.Replace(want[1], "slot03:!*::\n", "", 1))
	s.chmod("/etc/shadow", 0o640)
	s.chown("/etc/shadow", 0, 42)
	s.provision()
	if got := []string{s.read("/etc/shadow"), s.read("/etc/gshadow")}; got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%q", got)
	}
	s.is("/etc/shadow", 0, 42, 0o640)
}

// TestAccountLockThatIsNeverGivenBack: systemd-sysusers would wait for ever.
func TestAccountLockThatIsNeverGivenBack(t *testing.T) {
	s := newScratch(t)
	s.file(accountLock, "")
	fd, err := unix.Open(s.at(accountLock), unix.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run(true); err != nil {
		t.Errorf("a plan waits for a lock: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), lockPatience/20)
	defer cancel()
	if _, err := Run(ctx, s.system(), s.request(false)); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("%v", err)
	}
	if got := s.read("/etc/passwd"); strings.Contains(got, "slot") {
		t.Error(got)
	}
}

func TestMoreSlotsLaterKeepTheirBlock(t *testing.T) {
	s := newScratch(t)
	s.provision()
	s.host.Slots.Count = 120
	s.provision()
	if got := s.read("/etc/passwd"); !strings.Contains(got, "slot120:x:70120:70120:") {
		t.Error("slot120 lies elsewhere")
	}
	s.host.Slots.Count = 2
	rows := s.provision()
	if got := s.read("/etc/sudoers.d/agentworks-slots"); !strings.Contains(got, "= slot01, slot02\n") {
		t.Errorf("%v: %s", rows, got)
	}
	s.host.Slots.Count = 998
	s.host.Slots.Prefix = "big" // another shared group and other accounts: a new block
	if _, err := s.run(true); err != nil {
		t.Error(err)
	}
}

func FuzzIDRanges(f *testing.F) {
	f.Add("UID_MIN 1000\nUID_MAX 0x10000\n", "root:100000:65536\n")
	f.Fuzz(func(t *testing.T, defs, subs string) {
		for _, r := range append(loginDefs([]byte(defs)), subordinate("/etc/subuid", []byte(subs))...) {
			_ = r.overlaps(70000, 70999)
			if r.what == "" {
				t.Error("a range without a name")
			}
		}
	})
}
