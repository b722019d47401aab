package safefs

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func table(text string) Content {
	return Content{From: strings.NewReader(text), UID: -1, GID: -1, Mode: 0o640, KeepXattrs: true}
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

func TestT01B23ReplaceKeepsOwnerGroupAndAttributes(t *testing.T) {
	base := scratch(t)
	path := base + "/slots.json"
	file(t, path, other, service, 0o600)
	must(t, unix.Setxattr(path, "user.note", []byte("kept"), 0))
	acl := ACLFromMode(0o640).WithGroup(slot, 4)
	must(t, unix.Setxattr(path, string(AccessACL), acl.Encode(), 0))
	d := open(t, base)
	must(t, d.Replace("slots.json", table("new")))

	want(t, path, other, service, 0o640)
	if got := content(t, path); got != "new" {
		t.Errorf("content %q", got)
	}
	buf := make([]byte, 10)
	if n, err := unix.Getxattr(path, "user.note", buf); err != nil || string(buf[:n]) != "kept" {
		t.Errorf("attribute %q, %v", buf[:n], err)
	}
	n, err := d.Open("slots.json")
	must(t, err)
	defer n.Close()
	got, err := n.ACL(AccessACL)
	must(t, err)
	if len(got) != 5 || got[2] != (ACLEntry{Tag: ACLNamed, ID: slot, Perm: 4}) {
		t.Errorf("acl %v", got)
	}

	c := table("plain")
	c.UID, c.GID, c.Mode, c.KeepXattrs = 0, 0, 0o755, false
	must(t, d.Replace("slots.json", c))
	want(t, path, 0, 0, 0o755)
	if _, err := unix.Getxattr(path, "user.note", buf); err != unix.ENODATA {
		t.Errorf("attribute not wanted: %v", err)
	}
}

func TestB24ReplaceUnderAnyUmask(t *testing.T) {
	base := scratch(t)
	d := open(t, base)
	for _, mask := range []int{0, 0o077} {
		// The umask belongs to the thread's file system state once that is unshared.
		inPrivateMounts(t, func() error {
			unix.Umask(mask)
			if err := d.Replace("new", table("x")); err != nil {
				return err
			}
			sub, _, err := d.EnsureDir("dir", Exact(service, slot, 0o2770))
			if err != nil {
				return err
			}
			sub.Close()
			return d.Remove("dir")
		})
		want(t, base+"/new", 0, 0, 0o640)
		must(t, d.Remove("new"))
	}
}

func TestT06AFailedReplaceLeavesTheOldFile(t *testing.T) {
	base := scratch(t)
	file(t, base+"/slots.json", 0, service, 0o640)
	d := open(t, base)
	folder(t, base+"/"+TempName("slots.json"), 0, 0, 0o700)
	if err := d.Replace("slots.json", table("new")); err == nil || !strings.Contains(err.Error(), "in the way") {
		t.Errorf("a folder under the temp name: %v", err)
	}
	must(t, d.Remove(TempName("slots.json")))

	boom := errors.New("boom")
	c := table("")
	c.From = failingReader{boom}
	if err := d.Replace("slots.json", c); !errors.Is(err, boom) {
		t.Errorf("a failing source: %v", err)
	}
	if got := content(t, base+"/slots.json"); got != "x" {
		t.Errorf("content %q", got)
	}
	names, err := d.Names()
	must(t, err)
	if len(names) != 1 {
		t.Errorf("left beside it: %v", names)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

func TestB27AFailingDiskIsReported(t *testing.T) {
	base := scratch(t)
	file(t, base+"/slots.json", 0, service, 0o640)
	for _, failAt := range []int{1, 2} { // the file, the folder
		d := open(t, base)
		calls := 0
		d.fsync = func(fd int) error {
			if calls++; calls == failAt {
				return unix.EIO
			}
			return unix.Fsync(fd)
		}
		if err := d.Replace("slots.json", table("new")); !errors.Is(err, unix.EIO) {
			t.Errorf("sync %d failed, and Replace says %v", failAt, err)
		}
		if calls != failAt {
			t.Errorf("%d syncs", calls)
		}
	}
}

func TestReplaceDropsStaleFilesAndPlantedLinks(t *testing.T) {
	base := scratch(t)
	d := open(t, base)
	file(t, base+"/victim", 0, 0, 0o600)
	temp := base + "/" + TempName("slots.json")
	file(t, temp, slot, slot, 0o666)
	must(t, d.Replace("slots.json", table("one")))
	must(t, os.Symlink(base+"/victim", temp))
	must(t, d.Replace("slots.json", table("two")))
	if got := content(t, base+"/victim") + content(t, base+"/slots.json"); got != "xtwo" {
		t.Error(got)
	}
	file(t, temp, slot, slot, 0o666)
	must(t, d.DropStale("slots.json"))
	must(t, d.DropStale("slots.json"))
	if _, err := os.Lstat(temp); !os.IsNotExist(err) {
		t.Error("the stale file is still there")
	}
}

func TestReplaceRefusesWhatIsNoRegularFile(t *testing.T) {
	base := scratch(t)
	file(t, base+"/victim", 0, 0, 0o600)
	must(t, os.Symlink("victim", base+"/link"))
	folder(t, base+"/dir", 0, 0, 0o755)
	d := open(t, base)
	for _, name := range []string{"link", "dir"} {
		if err := d.Replace(name, table("new")); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := content(t, base+"/victim"); got != "x" {
		t.Errorf("content %q", got)
	}
}
