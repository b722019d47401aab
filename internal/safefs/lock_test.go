package safefs

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var since = time.Date(2026, 10, 4, 12, 0, 0, 0, time.UTC)

func TestB28LockNamesItsHolder(t *testing.T) {
	base := scratch(t)
	path := base + "/slots.json.lock"
	ctx := context.Background()
	first, err := Acquire(ctx, path, Holder{PID: 42, Verb: "provision", Since: since}, 0)
	must(t, err)
	want(t, path, 0, 0, 0o600)
	if got := content(t, path); got != "42 provision 2026-10-04T12:00:00Z\n" {
		t.Errorf("content %q", got)
	}
	for _, wait := range []time.Duration{0, 10 * time.Millisecond} {
		_, err = Acquire(ctx, path, Holder{PID: 43, Verb: "slots-assign", Since: since}, wait)
		var held *LockedError
		if !errors.As(err, &held) || held.Holder.PID != 42 || held.Holder.Verb != "provision" || !held.Holder.Since.Equal(since) {
			t.Fatalf("got %v", err)
		}
		if !strings.Contains(err.Error(), "held by provision (pid 42) since 2026-10-04T12:00:00Z") {
			t.Error(err)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Acquire(cancelled, path, Holder{}, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	inode := lstat(t, path).Ino
	must(t, first.Release())
	if got := content(t, path); got != "" {
		t.Errorf("after release: %q", got)
	}
	// The vain waiters give it back as soon as they get it.
	second, err := Acquire(ctx, path, Holder{PID: 44, Verb: "deploy", Since: since}, time.Minute)
	must(t, err)
	must(t, second.Release())
	if lstat(t, path).Ino != inode {
		t.Error("the lock file was replaced")
	}
}

func TestB28OneHolderAtATime(t *testing.T) {
	path := scratch(t) + "/lock"
	var group sync.WaitGroup
	var holders, turns atomic.Int32 // the race detector does not know flock
	for range 20 {
		group.Go(func() {
			for range 10 {
				l, err := Acquire(context.Background(), path, Holder{PID: 1, Verb: "x", Since: since}, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d holders", n)
				}
				holders.Add(-1)
				turns.Add(1)
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := turns.Load(); n != 200 {
		t.Errorf("%d turns", n)
	}
}

func TestLockRefusesLinksAndRepairsTheMode(t *testing.T) {
	base := scratch(t)
	file(t, base+"/victim", 0, 0, 0o644)
	must(t, os.Symlink("victim", base+"/link"))
	if _, err := Acquire(context.Background(), base+"/link", Holder{}, 0); err == nil {
		t.Error("a link was locked")
	}
	if got := content(t, base+"/victim"); got != "x" {
		t.Errorf("content %q", got)
	}
	l, err := Acquire(context.Background(), base+"/victim", Holder{}, 0)
	must(t, err)
	must(t, l.Release())
	want(t, base+"/victim", 0, 0, 0o600)
}

func FuzzParseHolder(f *testing.F) {
	f.Add("42 provision 2026-10-04T12:00:00Z\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, line string) {
		h, ok := parseHolder(line)
		if !ok {
			return
		}
		if again, ok := parseHolder(h.line()); ok && (again.PID != h.PID || again.Verb != h.Verb || !again.Since.Equal(h.Since.Truncate(time.Second))) {
			t.Errorf("%v became %v", h, again)
		}
	})
}
