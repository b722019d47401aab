package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestALockNamesItsHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "lock")
	first, err := tryLock(path, "lab up")
	if err != nil {
		t.Fatal(err)
	}
	_, err = tryLock(path, "lab reset")
	var locked *errLocked
	if want := fmt.Sprintf("pid %d, lab up, since ", os.Getpid()); !errors.As(err, &locked) || !strings.HasPrefix(locked.holder, want) {
		t.Errorf("got %v, want %q", err, want)
	}
	ctx, stop := context.WithCancel(context.Background())
	_, err = waitLock(ctx, path, "lab reset", func(string) { stop() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("waiting ended with %v", err)
	}
	// Whoever opened the file before it was removed must not believe to hold it.
	late, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if err := first.remove(); err != nil {
		t.Fatal(err)
	}
	second, err := waitLock(context.Background(), path, "lab up", func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	held, err := second.file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if old, err := late.Stat(); err != nil || os.SameFile(held, old) {
		t.Errorf("the removed file is held (%v)", err)
	}
}
