package safefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Numeric ids stand for people; no account is needed for them.
const (
	service = 71000
	slot    = 71001
	other   = 71002
)

// scratch is a folder that only root may write, as the folders on the way to an
// app are.
func scratch(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("safefs is tested as root")
	}
	return t.TempDir()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := OpenDir(path)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

// file makes a file with exactly this owner, group and mode.
func file(t *testing.T, path string, uid, gid int, mode uint32) {
	t.Helper()
	must(t, os.WriteFile(path, []byte("x"), 0o600))
	own(t, path, uid, gid, mode)
}

func folder(t *testing.T, path string, uid, gid int, mode uint32) {
	t.Helper()
	must(t, os.MkdirAll(path, 0o700))
	own(t, path, uid, gid, mode)
}

func own(t *testing.T, path string, uid, gid int, mode uint32) {
	t.Helper()
	must(t, os.Chown(path, uid, gid))
	must(t, unix.Chmod(path, mode))
}

func lstat(t *testing.T, path string) Stat {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return newStat(&st)
}

// want checks owner, group and mode.
func want(t *testing.T, path string, uid, gid int, perm uint32) {
	t.Helper()
	if st := lstat(t, path); st.UID != uid || st.GID != gid || st.Perm() != perm {
		t.Errorf("%s is %d:%d %04o, want %d:%d %04o", path, st.UID, st.GID, st.Perm(), uid, gid, perm)
	}
}

func TestOpenDirFollowsOnlyRootsLinks(t *testing.T) {
	base := scratch(t)
	folder(t, base+"/real/deep", 0, 0, 0o755)
	folder(t, base+"/theirs", service, service, 0o755)
	folder(t, base+"/open", 0, 0, 0o1777)
	link := func(target, name string, uid int) string {
		t.Helper()
		path := filepath.Join(base, name)
		must(t, os.Symlink(target, path))
		must(t, os.Lchown(path, uid, uid))
		return path
	}
	tests := []struct {
		name, path string
		refused    bool
	}{
		{"no link", base + "/real/deep", false},
		{"root's link", link(base+"/real", "abs", 0) + "/deep", false},
		{"root's relative link", link("real/../real", "rel", 0) + "/deep", false},
		{"root's link at the end", link("real/deep", "end", 0), false},
		{"a chain of root's links", link("abs/../rel", "chain", 0), false},
		{"above the root", link("../../../../../../../../.."+base+"/real", "up", 0), false},
		{"somebody's link", link(base+"/real", "planted", slot) + "/deep", true},
		{"root's link to somebody's link", link("planted", "indirect", 0), true},
		{"root's link in somebody's folder", link(base+"/real", "theirs/moved", 0), true},
		{"root's link in a folder open to all", link(base+"/real", "open/moved", 0), true},
		{"a loop", link("loop", "loop", 0), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := OpenDir(tt.path)
			if tt.refused {
				if !errors.Is(err, unix.ELOOP) {
					t.Fatalf("got %v, want ELOOP", err)
				}
				return
			}
			must(t, err)
			must(t, d.Close())
		})
	}
	for _, path := range []string{"relative", "/a/../b", "/a/", ""} {
		if _, err := OpenDir(path); err == nil {
			t.Errorf("OpenDir(%q) succeeded", path)
		}
	}
	if _, err := OpenDir(base + "/absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent folder: %v", err)
	}
	if fds := openDescriptors(t); fds > 40 {
		t.Errorf("%d descriptors are open after all that", fds)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

func TestB09NothingBelowADirGoesThroughALink(t *testing.T) {
	base := scratch(t)
	folder(t, base+"/out", 0, 0, 0o755)
	file(t, base+"/out/secret", 0, 0, 0o600)
	folder(t, base+"/in", slot, slot, 0o755)
	must(t, os.Symlink(base+"/out", base+"/in/link"))
	must(t, os.Symlink(base+"/out/secret", base+"/in/file"))
	d := open(t, base+"/in")

	if _, err := d.Dir("link"); err == nil {
		t.Error("a folder behind a link was opened")
	}
	if _, err := d.Open("link/secret"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a file through a link: %v", err)
	}
	if _, err := d.OpenRegular("file"); err == nil {
		t.Error("a file behind a link was opened")
	}
	if _, _, err := d.EnsureDir("link", Exact(slot, slot, 0o777)); err == nil {
		t.Error("a link passed for a folder")
	}
	for _, rel := range []string{"../out", "/etc", "a/../b", "", ".."} {
		if _, err := d.Open(rel); err == nil {
			t.Errorf("Open(%q) succeeded", rel)
		}
	}
	n, err := d.Open("file")
	must(t, err)
	defer n.Close()
	if _, err := n.Ensure(Attr{UID: -1, GID: -1, Set: 0o777}); err != nil {
		t.Error(err)
	}
	want(t, base+"/out/secret", 0, 0, 0o600)
	want(t, base+"/out", 0, 0, 0o755)
}

func TestReadFileOpensRegularFilesOnly(t *testing.T) {
	base := scratch(t)
	must(t, unix.Mkfifo(base+"/fifo", 0o666))
	must(t, unix.Mknod(base+"/device", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))) // /dev/zero
	file(t, base+"/file", slot, slot, 0)
	d := open(t, base)
	for _, name := range []string{"fifo", "device", "."} {
		if _, err := d.ReadFile(name, 10); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := d.ReadFile("file", 1)
	must(t, err)
	if string(got) != "x" {
		t.Errorf("read %q", got)
	}
	if _, err := d.ReadFile("file", 0); err == nil {
		t.Error("the limit does not hold")
	}
}

func TestEnsureDir(t *testing.T) {
	base := scratch(t)
	d := open(t, base)
	sub, diff, err := d.EnsureDir("new", Exact(service, slot, 0o2770))
	must(t, err)
	must(t, sub.Close())
	if diff != "created" {
		t.Errorf("diff %q", diff)
	}
	want(t, base+"/new", service, slot, 0o2770)

	before := ctime(t, base+"/new")
	sub, diff, err = d.EnsureDir("new", Exact(service, slot, 0o2770))
	must(t, err)
	must(t, sub.Close())
	if diff != "" || ctime(t, base+"/new") != before {
		t.Errorf("nothing to do, and yet: %q", diff)
	}
	own(t, base+"/new", 0, 0, 0o755)
	sub, diff, err = d.EnsureDir("new", Exact(service, slot, 0o2770))
	must(t, err)
	must(t, sub.Close())
	if diff != "owner 0 → 71000, group 0 → 71001, mode 0755 → 2770" {
		t.Errorf("diff %q", diff)
	}
	want(t, base+"/new", service, slot, 0o2770)

	file(t, base+"/file", 0, 0, 0o644)
	if _, _, err := d.EnsureDir("file", Exact(0, 0, 0o755)); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file in the way: %v", err)
	}
}

func ctime(t *testing.T, path string) unix.Timespec {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return st.Ctim
}

func TestEnsureOnEveryKindOfFile(t *testing.T) {
	base := scratch(t)
	must(t, unix.Mkfifo(base+"/fifo", 0o644))
	must(t, unix.Mknod(base+"/device", unix.S_IFBLK|0o644, int(unix.Mkdev(259, 4095))))
	must(t, unix.Mknod(base+"/socket", unix.S_IFSOCK|0o644, 0))
	file(t, base+"/file", 0, 0, 0o644)
	folder(t, base+"/folder", 0, 0, 0o644)
	d := open(t, base)
	for _, name := range []string{"fifo", "device", "socket", "file", "folder"} {
		n, err := d.Open(name)
		must(t, err)
		_, err = n.Ensure(Exact(service, slot, 0o660))
		must(t, err)
		must(t, n.Close())
		want(t, filepath.Join(base, name), service, slot, 0o660)
	}
}

func TestEnsureNeverHandsOverSetuid(t *testing.T) {
	base := scratch(t)
	d := open(t, base)
	file(t, base+"/prog", slot, slot, 0o6755)
	n, err := d.Open("prog")
	must(t, err)
	defer n.Close()
	_, err = n.Ensure(Attr{UID: service, GID: slot, Set: 0o060, Clear: 0o007})
	must(t, err)
	want(t, base+"/prog", service, slot, 0o770)

	// Asked for by name it stays: chown takes it, chmod brings it back.
	_, err = n.Ensure(Exact(0, 0, 0o4755))
	must(t, err)
	want(t, base+"/prog", 0, 0, 0o4755)

	// A folder's setgid is no danger.
	folder(t, base+"/dir", slot, slot, 0o2755)
	sub, err := d.Open("dir")
	must(t, err)
	defer sub.Close()
	_, err = sub.Ensure(Attr{UID: service, GID: slot})
	must(t, err)
	want(t, base+"/dir", service, slot, 0o2755)
}

func TestRemove(t *testing.T) {
	base := scratch(t)
	file(t, base+"/kept", 0, 0, 0o600)
	must(t, os.Symlink(base+"/kept", base+"/link"))
	folder(t, base+"/empty", 0, 0, 0o700)
	folder(t, base+"/full/x", 0, 0, 0o700)
	d := open(t, base)
	for _, name := range []string{"link", "empty", "absent"} {
		must(t, d.Remove(name))
	}
	if err := d.Remove("full"); !errors.Is(err, unix.ENOTEMPTY) {
		t.Errorf("a full folder: %v", err)
	}
	names, err := d.Names()
	must(t, err)
	if len(names) != 2 {
		t.Errorf("left: %v", names)
	}
	for _, name := range []string{"", ".", "..", "a/b"} {
		if err := d.Remove(name); err == nil {
			t.Errorf("Remove(%q) succeeded", name)
		}
	}
}
