package safefs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// settle waits until the kernel's clock has left what was just made behind.
func settle() {
	var made unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &made)
	for kernelTime() <= made.Nano() {
		runtime.Gosched()
	}
}

// decided walks base/tree and says of each hard-linked file, by one of its
// names, whether it lies inside; between acts when the walk has ended.
func decided(t *testing.T, base string, between func()) map[string]bool {
	t.Helper()
	d := open(t, base+"/tree")
	links := d.Hardlinks()
	must(t, d.Walk(context.Background(), func(e *Entry) error {
		_, err := links.Met(e)
		return err
	}))
	if between != nil {
		between()
	}
	got := map[string]bool{}
	must(t, links.Each(context.Background(), func(n *Node, _ Stat, inside bool) error {
		got[filepath.Base(n.Path())[:1]] = inside
		return nil
	}))
	return got
}

func TestHardlinksAreInsideWhenAllNamesWereMet(t *testing.T) {
	base := scratch(t)
	folder(t, base+"/tree", slot, slot, 0o700)
	folder(t, base+"/tree/a", slot, slot, 0o700)
	folder(t, base+"/tree/b", slot, slot, 0o700)
	link := func(from, to string) {
		t.Helper()
		must(t, os.Link(base+from, base+to))
	}
	for _, name := range []string{"/tree/a/inside", "/tree/a/moved", "/tree/a/grown", "/outside", "/tree/single"} {
		file(t, base+name, service, service, 0o600)
	}
	link("/tree/a/inside", "/tree/b/inside")
	link("/tree/a/moved", "/tree/b/moved")
	link("/tree/a/grown", "/tree/b/grown")
	link("/outside", "/tree/a/outside")
	settle()
	got := decided(t, base, func() {
		must(t, os.Rename(base+"/tree/a/moved", base+"/tree/a/m2"))
		must(t, os.Rename(base+"/tree/a/m2", base+"/tree/a/moved"))
		link("/tree/b/grown", "/grown")
	})
	want := map[string]bool{"i": true, "m": false, "g": false, "o": false}
	for name, inside := range want {
		if is, met := got[name]; !met || is != inside {
			t.Errorf("%s: inside %v, met %v", name, is, met)
		}
	}
	if len(got) != len(want) {
		t.Error(got)
	}
}

// One name that a folder carries round the walk is one name.
func TestAFolderMovedDuringTheWalkCountsOnce(t *testing.T) {
	base := scratch(t)
	folder(t, base+"/tree", slot, slot, 0o700)
	for _, name := range []string{"/tree/a", "/tree/b"} {
		folder(t, base+name, slot, slot, 0o700)
	}
	file(t, base+"/env", service, service, 0o600)
	must(t, os.Link(base+"/env", base+"/tree/a/env"))
	settle()
	d := open(t, base+"/tree")
	links := d.Hardlinks()
	met := 0
	must(t, d.Walk(context.Background(), func(e *Entry) error {
		kept, err := links.Met(e)
		if kept {
			met++
			// The other name, which the walk comes to next or has been at.
			err = errors.Join(err, unix.Renameat2(unix.AT_FDCWD, base+"/tree/a", unix.AT_FDCWD, base+"/tree/b", unix.RENAME_EXCHANGE))
		}
		return err
	}))
	if met == 0 {
		t.Fatal("not met")
	}
	must(t, links.Each(context.Background(), func(_ *Node, _ Stat, inside bool) error {
		if inside {
			t.Errorf("met %d times, and taken for %d names", met, met)
		}
		return nil
	}))
}

func TestOwnRefusesWhatIsMountedThere(t *testing.T) {
	base := scratch(t)
	folder(t, base+"/out", 0, 0, 0o755)
	folder(t, base+"/tree", slot, slot, 0o700)
	must(t, os.Symlink("tree", base+"/link"))
	file(t, base+"/file", slot, slot, 0o600)
	d := open(t, base)
	for name, want := range map[string]error{"tree": nil, "link": unix.ELOOP, "file": unix.ENOTDIR, "gone": unix.ENOENT} {
		sub, err := d.Own(name)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			sub.Close()
		}
	}
	for _, name := range []string{"", ".", "..", "tree/x", "/tree"} {
		if _, err := d.Own(name); err == nil {
			t.Errorf("%q was opened", name)
		}
	}
	inPrivateMounts(t, func() error {
		if err := unix.Mount(base+"/out", base+"/tree", "", unix.MS_BIND, ""); err != nil {
			return err
		}
		d, err := OpenDir(base)
		if err != nil {
			return err
		}
		defer d.Close()
		if _, err := d.Own("tree"); !errors.Is(err, unix.EXDEV) {
			t.Errorf("a mount: %v", err)
		}
		return nil
	})
}

func TestWithoutKeepsWhatTheMaskLeftTheGroup(t *testing.T) {
	list := ACL{{Tag: ACLOwner, Perm: 7}, {Tag: ACLUser, Perm: 7, ID: other}, {Tag: ACLGroup, Perm: 7}, {Tag: ACLNamed, Perm: 5, ID: slot}, {Tag: ACLMask, Perm: 5}, {Tag: ACLOther}}
	all := list.Without(func(ACLEntry) bool { return true })
	if want := ACLFromMode(0o750); len(all) != 3 || all[0] != want[0] || all[1] != want[1] || all[2] != want[2] {
		t.Errorf("%v", all)
	}
	some := list.Without(func(e ACLEntry) bool { return e.Tag == ACLUser })
	if len(some) != 5 || some.check() != nil {
		t.Errorf("%v", some)
	}
	if got := ACLFromMode(0o640).Without(func(ACLEntry) bool { return true }); len(got) != 3 {
		t.Errorf("%v", got)
	}
}
