package safefs

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// give is the rule the tests walk with: links stay as they are.
func give(st Stat) Attr {
	switch {
	case st.IsLink():
		return Keep()
	case st.IsDir():
		return Exact(service, slot, 0o2770)
	}
	return Attr{UID: service, GID: slot, Set: 0o060, Clear: 0o007}
}

func giveTree(t *testing.T, d *Dir) (changed int) {
	t.Helper()
	must(t, d.Walk(context.Background(), func(e *Entry) error {
		if e.Mounted {
			return nil
		}
		diff, err := e.Ensure(give)
		if diff != "" {
			changed++
		}
		return err
	}))
	return changed
}

func TestWalkVisitsAllAndFollowsNothing(t *testing.T) {
	base := scratch(t)
	folder(t, base+"/out", 0, 0, 0o755)
	file(t, base+"/out/secret", 0, 0, 0o600)
	folder(t, base+"/tree", slot, slot, 0o700)
	folder(t, base+"/tree/a", slot, slot, 0o700)
	folder(t, base+"/tree/a/b", slot, slot, 0o700)
	file(t, base+"/tree/a/b/f", slot, slot, 0o600)
	file(t, base+"/tree/ a\nb\xff", slot, slot, 0o644)
	must(t, os.Symlink(base+"/out", base+"/tree/a/link"))
	must(t, os.Symlink(base+"/out/secret", base+"/tree/a/b/link"))
	must(t, unix.Mkfifo(base+"/tree/a/fifo", 0o600))
	d := open(t, base+"/tree")

	var seen []string
	must(t, d.Walk(context.Background(), func(e *Entry) error {
		rel, _ := filepath.Rel(base+"/tree", e.Path())
		seen = append(seen, rel)
		return nil
	}))
	slices.Sort(seen)
	if got := fmt.Sprintf("%q", seen); got != `[" a\nb\xff" "a" "a/b" "a/b/f" "a/b/link" "a/fifo" "a/link"]` {
		t.Error(got)
	}
	if n := giveTree(t, d); n != 5 {
		t.Errorf("changed %d", n)
	}
	if n := giveTree(t, d); n != 0 {
		t.Errorf("changed %d the second time", n)
	}
	want(t, base+"/tree/a/b", service, slot, 0o2770)
	want(t, base+"/tree/a/b/f", service, slot, 0o660)
	want(t, base+"/tree/a/fifo", service, slot, 0o660)
	want(t, base+"/out", 0, 0, 0o755)
	want(t, base+"/out/secret", 0, 0, 0o600)
	want(t, base+"/tree", slot, slot, 0o700)
}

func TestWalkLeavesOutWhatTheVisitorSkips(t *testing.T) {
	base := scratch(t)
	folder(t, base+"/open/inner", 0, 0, 0o755)
	folder(t, base+"/private/inner", 0, 0, 0o755)
	var seen []string
	must(t, open(t, base).Walk(t.Context(), func(e *Entry) error {
		rel, _ := filepath.Rel(base, e.Path())
		seen = append(seen, rel)
		if e.Name == "private" {
			return fs.SkipDir
		}
		return nil
	}))
	slices.Sort(seen)
	if !slices.Equal(seen, []string{"open", "open/inner", "private"}) {
		t.Errorf("saw %q", seen)
	}
}

func TestWalkEntersNoMount(t *testing.T) {
	base := scratch(t)
	folder(t, base+"/tree/bind", slot, slot, 0o700)
	folder(t, base+"/tree/tmpfs", slot, slot, 0o700)
	folder(t, base+"/out", 0, 0, 0o755)
	file(t, base+"/out/secret", 0, 0, 0o600)
	file(t, base+"/tree/bound", slot, slot, 0o600)
	// A namespace of this thread alone; the thread dies with the goroutine.
	inPrivateMounts(t, func() error {
		for _, m := range [][3]string{{base + "/out", base + "/tree/bind", ""}, {base + "/out/secret", base + "/tree/bound", ""}, {"none", base + "/tree/tmpfs", "tmpfs"}} {
			flags := uintptr(unix.MS_BIND)
			if m[2] != "" {
				flags = 0
			}
			if err := unix.Mount(m[0], m[1], m[2], flags, ""); err != nil {
				return err
			}
		}
		d, err := OpenDir(base + "/tree")
		if err != nil {
			return err
		}
		defer d.Close()
		mounted := 0
		return d.Walk(context.Background(), func(e *Entry) error {
			if e.Mounted {
				mounted++
			}
			if e.Stat.IsDir() && !e.Mounted {
				return fmt.Errorf("%s was entered", e.Path())
			}
			if _, err := e.Ensure(give); err == nil {
				return fmt.Errorf("%s was changed", e.Path())
			}
			return nil
		})
	})
	want(t, base+"/out", 0, 0, 0o755)
	want(t, base+"/out/secret", 0, 0, 0o600)
}

func TestWalkGoesDeeperThanAPathIsLong(t *testing.T) {
	base := scratch(t)
	must(t, os.Mkdir(base+"/deep", 0o700))
	fd, err := unix.Open(base+"/deep", unix.O_PATH, 0)
	must(t, err)
	name := strings.Repeat("d", 100)
	const levels = 200
	for range levels {
		must(t, unix.Mkdirat(fd, name, 0o700))
		next, err := unix.Openat(fd, name, unix.O_PATH, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	if n := giveTree(t, open(t, base+"/deep")); n != levels {
		t.Errorf("changed %d of %d", n, levels)
	}
}

// A user who renames, links and exchanges files while root walks his tree must
// not get anything outside of it changed (case B09).
func TestB09WalkAgainstARacingUser(t *testing.T) {
	base := scratch(t)
	folder(t, base+"/out", 0, 0, 0o755)
	folder(t, base+"/out/sub", 0, 0, 0o755)
	file(t, base+"/out/sub/secret", 0, 0, 0o600)
	folder(t, base+"/tree", slot, slot, 0o700)
	// The user's own folders by descriptor: this stand-in for him is root, and
	// must not go through his links itself.
	var subs [20]int
	for i := range subs {
		sub := fmt.Sprintf("%s/tree/d%d/sub", base, i)
		folder(t, sub, slot, slot, 0o700)
		file(t, sub+"/secret", slot, slot, 0o600)
		fd, err := unix.Open(sub, unix.O_PATH, 0)
		must(t, err)
		defer unix.Close(fd)
		subs[i] = fd
	}
	must(t, os.Symlink(base+"/out", base+"/tree/link"))
	must(t, os.Symlink(base+"/out/sub/secret", base+"/tree/filelink"))
	stop := make(chan struct{})
	var users sync.WaitGroup
	for i := range 2 {
		users.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				// EXCHANGE leaves no moment without the name.
				exchange := func(fd int, name, link string) {
					unix.Renameat2(fd, name, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
				}
				dir, sub := fmt.Sprintf("%s/tree/d%d", base, n%20), subs[n%20]
				exchange(unix.AT_FDCWD, dir, base+"/tree/link")
				exchange(sub, "secret", base+"/tree/filelink")
				exchange(unix.AT_FDCWD, dir, base+"/tree/link")
				unix.Fchownat(sub, "secret", slot, slot, unix.AT_SYMLINK_NOFOLLOW)
			}
		})
	}
	d := open(t, base+"/tree")
	for range 300 {
		giveTree(t, d)
		must(t, unix.Fchownat(subs[3], "", slot, slot, unix.AT_EMPTY_PATH))
	}
	close(stop)
	users.Wait()
	want(t, base+"/out", 0, 0, 0o755)
	want(t, base+"/out/sub", 0, 0, 0o755)
	want(t, base+"/out/sub/secret", 0, 0, 0o600)
}

func BenchmarkWalkNothingToDo(b *testing.B) {
	base := b.TempDir()
	const files = 100_000
	for i := range 100 {
		dir := fmt.Sprintf("%s/d%02d", base, i)
		if err := os.Mkdir(dir, 0o700); err != nil {
			b.Fatal(err)
		}
		for j := range files / 100 {
			if err := os.WriteFile(fmt.Sprintf("%s/f%03d", dir, j), nil, 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	d, err := OpenDir(base)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	gid := slot
	rule := func(st Stat) Attr {
		a := give(st)
		a.GID = gid
		return a
	}
	walk := func(b *testing.B) {
		if err := d.Walk(context.Background(), func(e *Entry) error {
			_, err := e.Ensure(rule)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("change", func(b *testing.B) {
		for b.Loop() {
			gid++
			walk(b)
		}
	})
	b.Run("same", func(b *testing.B) {
		for b.Loop() {
			walk(b)
		}
	})
}
