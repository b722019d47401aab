package release

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func mkfifo(p string) error { return unix.Mkfifo(p, 0o644) }

// A copy makes every mode itself: the builder's and the deployer's umask never
// matter.
func TestB08UmaskDoesNotMatter(t *testing.T) {
	b := variant(t, "umask")
	for _, mask := range []int{0o077, 0o007, 0} {
		s := testStore(t)
		old := syscall.Umask(mask)
		install(t, s, b)
		_, _, err := traverse(s.Layout.Releases(), s.dir(b.m.ID), s.UID)
		syscall.Umask(old)
		must(t, err)
		for p, want := range map[string]uint32{
			".": 0o751, "bin": 0o751, "bin/video-studio-landlock-runner": 0o755, "frontend": 0o755,
			"frontend/index.html": 0o644, "lib": 0o755, "lib/deep/er": 0o755, "lib/deep/er/data": 0o644, manifestName: 0o644,
		} {
			if got := perm(t, filepath.Join(s.dir(b.m.ID), p)); got != want {
				t.Errorf("umask %03o: %s is %04o, want %04o", mask, p, got, want)
			}
		}
	}
}

func TestR01SlotsReachTheLauncherAndListNothing(t *testing.T) {
	b := variant(t, "modes")
	for _, was := range []uint32{0o700, 0o775, 0o711, 0o2755} {
		s := testStore(t)
		install(t, s, b)
		releases, dir := s.Layout.Releases(), s.dir(b.m.ID)
		paths := []string{releases, dir, filepath.Join(dir, "bin"), filepath.Join(dir, "bin/video-studio-landlock-runner")}
		for _, p := range paths {
			must(t, unix.Chmod(p, was))
		}
		other := filepath.Join(dir, "frontend")
		must(t, os.Chmod(other, 0o700))
		changed, foreign, err := traverse(releases, dir, s.UID)
		must(t, err)
		if len(foreign) > 0 || len(changed) == 0 {
			t.Errorf("%04o: changed %v, foreign %v", was, changed, foreign)
		}
		if got := perm(t, releases); got != 0o711 {
			t.Errorf("%04o: releases is %04o", was, got)
		}
		for _, p := range paths[1:3] {
			if got := perm(t, p); got&0o001 == 0 || got&0o004 != 0 {
				t.Errorf("%04o: %s is %04o", was, p, got)
			}
		}
		if got := perm(t, paths[3]); got != 0o755 {
			t.Errorf("%04o: launcher is %04o", was, got)
		}
		if got := perm(t, other); got != 0o700 {
			t.Errorf("%04o: %s was touched: %04o", was, other, got)
		}
		if changed, _, err = traverse(releases, dir, s.UID); err != nil || len(changed) > 0 {
			t.Errorf("%04o: a second run changed %v, %v", was, changed, err)
		}
	}
	t.Run("only what the account owns", func(t *testing.T) {
		s := testStore(t)
		install(t, s, b)
		must(t, os.Chown(s.Layout.Releases(), 70001, 70001))
		must(t, os.Chmod(s.Layout.Releases(), 0o775))
		_, foreign, err := traverse(s.Layout.Releases(), s.dir(b.m.ID), s.UID)
		must(t, err)
		if len(foreign) != 1 || perm(t, s.Layout.Releases()) != 0o775 {
			t.Errorf("foreign %v, releases %04o", foreign, perm(t, s.Layout.Releases()))
		}
	})
}

func TestOnlyMissingContentIsSentAndSourcesAreVerified(t *testing.T) {
	s := testStore(t)
	first, second := variant(t, "one"), variant(t, "two")
	if l := install(t, s, first); len(l.Missing) != len(first.m.contents()) {
		t.Fatalf("an empty host misses %d of %d", len(l.Missing), len(first.m.contents()))
	}
	l, err := s.look(context.Background(), second.m, second.manifest)
	must(t, err)
	if len(l.Missing) != 1 || l.Missing[0] != second.m.Files["frontend/index.html"].SHA256 {
		t.Fatalf("missing %v", l.Missing)
	}
	// What the manifest of the other release says does not count, its bytes do.
	must(t, os.WriteFile(filepath.Join(s.dir(first.m.ID), "lib/deep/er/data"), []byte("DATA"), 0o644))
	l, err = s.look(context.Background(), second.m, second.manifest)
	must(t, err)
	if len(l.Missing) != 2 {
		t.Fatalf("missing %v", l.Missing)
	}
	install(t, s, second)
	must(t, verify(context.Background(), s.dir(second.m.ID), second.m, second.manifest))
	a, c := stat(t, filepath.Join(s.dir(first.m.ID), "bin/slotctl")), stat(t, filepath.Join(s.dir(second.m.ID), "bin/slotctl"))
	if a.Ino == c.Ino {
		t.Error("two releases share a file")
	}
}

func stat(t *testing.T, p string) (st unix.Stat_t) {
	t.Helper()
	must(t, unix.Lstat(p, &st))
	return st
}

// The service account owns what lies in releases, and may put FIFOs there.
func TestFIFOsInReleasesHoldNobodyUp(t *testing.T) {
	s := testStore(t)
	a, b := variant(t, "a"), variant(t, "b")
	install(t, s, a)
	dir := s.dir(a.m.ID)
	must(t, os.Remove(filepath.Join(dir, "empty")))
	other := s.dir("vs-00000000-20200101000000")
	must(t, os.Mkdir(other, 0o755))
	for _, fifo := range []string{filepath.Join(dir, "empty"), filepath.Join(dir, markerName), filepath.Join(other, manifestName), s.Layout.ServiceHalves()} {
		must(t, mkfifo(fifo))
	}
	l, err := s.look(context.Background(), b.m, b.manifest)
	if err != nil || !slices.Contains(l.Missing, b.m.Files["empty"].SHA256) {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := s.look(context.Background(), a.m, a.manifest); err != nil || l.Present || l.Broken == nil {
		t.Errorf("%+v, %v", l, err)
	}
	if left, err := s.leftovers(""); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := s.dropHalves(); err == nil {
		t.Error("a FIFO in place of the uploads' folder is no error")
	}
}

func TestR09PayloadIsNotTrusted(t *testing.T) {
	b := variant(t, "payload")
	shas := b.m.contents()
	page := b.m.Files["frontend/index.html"]
	head := entry{name: manifestName, kind: tar.TypeReg, data: string(b.manifest)}
	one := entry{name: "content/" + page.SHA256, kind: tar.TypeReg, data: "payload"}
	for name, c := range map[string]struct {
		entries   []entry
		announced string
		want      string
	}{
		"another announced digest": {[]entry{head}, strings.Repeat("0", 64), "announced"},
		"no manifest first":        {[]entry{one, head}, "", "not with a manifest"},
		"flipped byte":             {[]entry{head, {name: one.name, kind: tar.TypeReg, data: "Payload"}}, "", "other bytes"},
		"other length":             {[]entry{head, {name: one.name, kind: tar.TypeReg, data: "payload+"}}, "", "bytes, the manifest says"},
		"twice":                    {[]entry{head, one, one}, "", "twice"},
		"not listed":               {[]entry{head, {name: "content/" + strings.Repeat("0", 64), kind: tar.TypeReg}}, "", "does not list"},
		"a path":                   {[]entry{head, {name: "../../x", kind: tar.TypeReg}}, "", "does not list"},
		"a link":                   {[]entry{head, {name: one.name, kind: tar.TypeSymlink, link: "/etc/passwd"}}, "", "does not list"},
		"too little":               {[]entry{head, one}, "", "was not sent"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testStore(t)
			announced := c.announced
			if announced == "" {
				announced = Digest(b.manifest)
			}
			p := ReadPayload(bytes.NewReader(archive(t, c.entries...)))
			m, manifest, err := p.manifest(announced)
			if err == nil {
				err = s.stage(context.Background(), m, manifest, &look{}, p)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
		})
	}
	if len(shas) == len(b.m.Files) {
		t.Error("the sample has no content twice")
	}
}

// The build is only ever read.
func TestR10BuildFolderIsNotWrittenTo(t *testing.T) {
	dir := tree(t, t.TempDir(), sampleTree())
	before := listing(t, dir)
	s := testStore(t)
	install(t, s, build(t, dir, programs(t, "1")))
	if after := listing(t, dir); after != before {
		t.Errorf("the build changed:\n%s\nwas\n%s", after, before)
	}
}

// listing is every name with mode, size, time and link, as text.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link, _ := os.Readlink(p)
		rel, _ := filepath.Rel(dir, p)
		b.WriteString(rel + " " + info.Mode().String() + " " + info.ModTime().Format(time.RFC3339Nano) + " " + link + "\n")
		return nil
	}))
	return b.String()
}

func TestB31AReaderNeverMissesCurrent(t *testing.T) {
	s := testStore(t)
	a, b := variant(t, "one"), variant(t, "two")
	install(t, s, a)
	install(t, s, b)
	page := filepath.Join(s.Layout.Current(), "frontend/index.html")
	stop := make(chan struct{})
	var readers sync.WaitGroup
	var reads [2]int
	for i := range reads {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got, err := os.ReadFile(page); err != nil || string(got) != "one" && string(got) != "two" {
					t.Errorf("read %q, %v", got, err)
					return
				}
				reads[i]++
			}
		})
	}
	for i := range 1000 {
		id := a.m.ID
		if i%2 == 0 {
			id = b.m.ID
		}
		if _, err := s.switchTo(id); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	readers.Wait()
	t.Logf("%d reads during 1,000 switches", reads[0]+reads[1])
	if id, target, err := s.current(); err != nil || id != a.m.ID || target != "releases/"+a.m.ID {
		t.Errorf("current is %s (%s), %v", id, target, err)
	}
}

func TestBrokenReleaseChangesPlacesWithTheWholeOne(t *testing.T) {
	s := testStore(t)
	b := variant(t, "whole")
	install(t, s, b)
	launcher := filepath.Join(s.dir(b.m.ID), "bin/video-studio-landlock-runner")
	must(t, os.WriteFile(launcher, []byte("#!/bin/sh\nexit 125\n"), 0o755))
	l, err := s.look(context.Background(), b.m, b.manifest)
	must(t, err)
	if l.Broken == nil || l.Present || len(l.Missing) != 1 {
		t.Fatalf("%+v", l)
	}
	install(t, s, b)
	must(t, verify(context.Background(), s.dir(b.m.ID), b.m, b.manifest))
	if left, err := s.leftovers(""); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestB27DiskThatDoesNotSyncIsAnError(t *testing.T) {
	b := variant(t, "sync")
	broken := errors.New("input/output error")
	s := testStore(t)
	s.SyncFS = func(int) error { return broken }
	l, err := s.look(context.Background(), b.m, b.manifest)
	must(t, err)
	p := b.payload(t, l.Missing)
	_, _, err = p.manifest(Digest(b.manifest))
	must(t, err)
	if err := s.stage(context.Background(), b.m, b.manifest, l, p); !errors.Is(err, broken) {
		t.Errorf("stage: %v", err)
	}
	s = testStore(t)
	install(t, s, b)
	s.SyncDir = func(int) error { return broken }
	if done, err := s.switchTo(b.m.ID); !done || !errors.Is(err, broken) {
		t.Errorf("switch: %v, %v", done, err)
	}
}

func TestR04R11LeftoversOfAKilledRun(t *testing.T) {
	s := testStore(t)
	live, placed := variant(t, "live"), variant(t, "placed")
	install(t, s, placed)
	install(t, s, live)
	ours := []byte(marker(s.Now()))
	must(t, os.WriteFile(filepath.Join(s.dir(placed.m.ID), markerName), ours, 0o600))
	must(t, os.WriteFile(filepath.Join(s.dir(live.m.ID), markerName), ours, 0o600))
	half := s.dir(staging("vs-00000000-20260101000000"))
	must(t, os.MkdirAll(filepath.Join(half, "bin"), 0o755))
	foreign := s.dir("vs-11111111-20260101000000")
	must(t, os.MkdirAll(foreign, 0o755))
	must(t, os.WriteFile(filepath.Join(foreign, markerName), []byte("4711\n"), 0o644)) // another tool's
	stray := s.dir("user-data")
	must(t, os.Mkdir(stray, 0o755))
	must(t, os.Symlink("nowhere", filepath.Join(s.Layout.App, ".current.agentworks-new")))

	left, err := s.leftovers("")
	must(t, err)
	must(t, s.clean(left))
	for p, stays := range map[string]bool{
		half: false, s.dir(placed.m.ID): false, filepath.Join(s.Layout.App, ".current.agentworks-new"): false,
		filepath.Join(s.dir(live.m.ID), markerName): false, s.dir(live.m.ID): true, foreign: true, stray: true,
	} {
		if _, err := os.Lstat(p); (err == nil) != stays {
			t.Errorf("%s stays: %v", p, err == nil)
		}
	}
	if left, err := s.leftovers(""); err != nil || len(left) > 0 {
		t.Errorf("still left: %v, %v", left, err)
	}
}
