package onhost

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// bigRows do not get small by packing.
func bigRows() []report.Row {
	random := rand.New(rand.NewSource(1))
	rows := make([]report.Row, 500)
	for i := range rows {
		detail := make([]byte, 60)
		for j := range detail {
			detail[j] = byte('!' + random.Intn(90))
		}
		rows[i] = report.Row{State: report.Pass, Check: "row", Slot: strconv.Itoa(i), Detail: string(detail)}
	}
	return rows
}

// paged is a channel without streams that shows few bytes of an output, and may
// spoil the pages.
type paged struct {
	remote.Channel
	limit int
	spoil func(page int, b []byte) []byte
	mu    sync.Mutex
	pages int
}

func (p *paged) OutputLimit() int { return p.limit }

func (p *paged) Run(ctx context.Context, cmd remote.Cmd) (int, error) {
	input, err := readInput(cmd.Stdin)
	if err != nil {
		return 0, err
	}
	var out bytes.Buffer
	exit, err := p.Channel.Run(ctx, remote.Cmd{Argv: cmd.Argv, Stdin: bytes.NewReader(input), Stdout: &out, Stderr: cmd.Stderr})
	shown := out.Bytes()
	if len(shown) > p.limit {
		return 0, errors.New("the output was cut")
	}
	if strings.Contains(cmd.Argv[2], "tail -c") {
		p.mu.Lock()
		p.pages++
		p.mu.Unlock()
		if p.spoil != nil {
			shown = p.spoil(p.pages, shown)
		}
	}
	if cmd.Stdout != nil {
		if _, err := cmd.Stdout.Write(shown); err != nil {
			return 0, err
		}
	}
	return exit, err
}

func TestB49AnswerThatDoesNotFitComesInPages(t *testing.T) {
	p := testProgram(t)
	before := kept(t)
	for _, limit := range []int{24_000, 4_000} {
		ch := &paged{Channel: localChannel(t), limit: limit}
		e, err := p.exchange(t.Context(), ch, p.run(self(t)), Request{Verb: "big"}, nil, io.Discard)
		if err != nil || len(e.Rows) != 500 || e.Rows[499] != bigRows()[499] {
			t.Fatalf("limit %d: %d rows, %v", limit, len(e.Rows), err)
		}
		if ch.pages < 30_000/limit {
			t.Errorf("limit %d: %d pages", limit, ch.pages)
		}
		if n := kept(t); n != before {
			t.Errorf("%d answers are kept, before it were %d", n, before)
		}
	}
}

func kept(t *testing.T) int {
	t.Helper()
	left, err := os.ReadDir(keptFolder(0))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return len(left)
}

func TestB49SpoiledPagesAreNoVerdict(t *testing.T) {
	t.Cleanup(func() { // what nobody came for
		files, _ := filepath.Glob(keptFolder(0) + "/*")
		for _, f := range files {
			_ = os.Remove(f)
		}
		_ = os.Remove(keptFolder(0))
	})
	p := testProgram(t)
	for name, spoil := range map[string]func(int, []byte) []byte{
		"cut":     func(n int, b []byte) []byte { return b[:len(b)-n/2] },
		"more":    func(n int, b []byte) []byte { return append(b, 'x') },
		"altered": func(_ int, b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"empty":   func(int, []byte) []byte { return nil },
		"swapped": func(_ int, b []byte) []byte { b[0], b[1] = b[1]^2, b[0]; return b },
	} {
		t.Run(name, func(t *testing.T) {
			ch := &paged{Channel: localChannel(t), limit: 8_000, spoil: spoil}
			e, err := p.exchange(t.Context(), ch, p.run(self(t)), Request{Verb: "big"}, nil, io.Discard)
			if report.CodeOf(err) != report.ExitUnfinished || len(e.Rows) > 0 {
				t.Errorf("%d rows, %v", len(e.Rows), err)
			}
		})
	}
}

func TestKeptAnswersAreClosedAndDropped(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "answers")
	first, err := keepIn(folder, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(filepath.Join(folder, first)); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	old := time.Now().Add(-keptFor - time.Minute)
	if err := os.Chtimes(filepath.Join(folder, first), old, old); err != nil {
		t.Fatal(err)
	}
	second, err := keepIn(folder, []byte("two"))
	if err != nil || second == first || !keptName(second) {
		t.Fatalf("%q, %v", second, err)
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 1 || entries[0].Name() != second {
		t.Errorf("in the folder: %v", entries)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := keepIn(folder, []byte("three")); err == nil {
		t.Error("kept in a folder that others may enter")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if _, err := keepIn(link, []byte("four")); err == nil {
		t.Error("kept behind a link")
	}
}

// A caller whose connection was cut is noticed by its silence.
func TestSilentLeaseEnds(t *testing.T) {
	in, feed := io.Pipe()
	defer feed.Close()
	go func() { _, _ = feed.Write([]byte(`{"v":1,"verb":"polite","beat":1}` + "\n")) }()
	var out bytes.Buffer
	if code := testServer().Serve(t.Context(), in, &out, io.Discard); code != report.ExitUnfinished {
		t.Errorf("exit %d", code)
	}
	beating := &lease{closed: make(chan struct{}), beat: time.Millisecond}
	if n, err := beating.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func readInput(r io.Reader) ([]byte, error) {
	if r == nil {
		return nil, nil
	}
	return io.ReadAll(r)
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (p *paged) InputLimit([]string) int { return 8000 }
