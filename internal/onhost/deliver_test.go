package onhost

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"agentworks-deploy/internal/remote"
	"agentworks-deploy/internal/report"
)

// small is a channel without streams that takes few bytes at once.
type small struct{ *paged }

func (small) InputLimit([]string) int { return 1000 }

func fileOf(t *testing.T, size int) (File, []byte) {
	t.Helper()
	text := make([]byte, size)
	for i := range text {
		text[i] = byte(i*i>>3 ^ i>>7)
	}
	path := filepath.Join(t.TempDir(), "slotctl")
	if err := os.WriteFile(path, text, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := NewFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return f, text
}

func TestFileGoesInPieces(t *testing.T) {
	file, text := fileOf(t, 40_000)
	folder := filepath.Join(t.TempDir(), "root")
	ch := small{&paged{Channel: localChannel(t), limit: 1000}}
	p, err := file.CutFor(ch, folder)
	if err != nil || p.Count() < 3 {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := p.Send(t.Context(), ch, io.Discard); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(folder, "in-"+file.sum))
	if err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	for name, spoil := range map[string]func(*Pieces){
		"altered": func(p *Pieces) { p.packed[len(p.packed)/2] ^= 1 },
		"cut":     func(p *Pieces) { p.packed = p.packed[:len(p.packed)-9] },
		"other":   func(p *Pieces) { p.file.sum = strings.Repeat("0", 64) },
	} {
		p, err := file.CutFor(ch, folder)
		if err != nil {
			t.Fatal(err)
		}
		spoil(p)
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		if err := p.Send(t.Context(), ch, io.Discard); report.CodeOf(err) != report.ExitUnfinished || !strings.Contains(err.Error(), "arrived changed") {
			t.Errorf("%s: %v", name, err)
		}
		if got, _ := filepath.Glob(folder + "/in-" + strings.Repeat("?", 64)); len(got) > 0 {
			t.Errorf("%s: kept %v", name, got)
		}
	}
}

// Of two runs that deliver the same, one joins the pieces. The other finds the
// file, or learns that it is gone.
func TestPiecesThatAnotherRunTook(t *testing.T) {
	file, text := fileOf(t, 40_000)
	folder := filepath.Join(t.TempDir(), "root")
	ch := small{&paged{Channel: localChannel(t), limit: 1000}}
	p, err := file.CutFor(ch, folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Send(t.Context(), ch, io.Discard); err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(folder, "in-"+file.sum)
	join := func() error {
		return file.script(t.Context(), ch, nil, joinScript, folder, file.sum, strconv.Itoa(p.Count()))
	}
	if err := join(); err != nil {
		t.Errorf("joined by another run: %v", err)
	}
	if got, _ := os.ReadFile(whole); !bytes.Equal(got, text) {
		t.Errorf("%d bytes", len(got))
	}
	if err := os.Remove(whole); err != nil {
		t.Fatal(err)
	}
	if err := join(); report.CodeOf(err) != report.ExitLocked || !strings.Contains(err.Error(), "another run has taken them") {
		t.Errorf("used by another run: %v", err)
	}
}

func TestFileThatIsTooLargeForPiecesIsNotReadToItsEnd(t *testing.T) {
	file := File{Path: "/dev/urandom", sum: strings.Repeat("0", 64), size: 1 << 40}
	if _, err := file.CutFor(small{}, t.TempDir()); err == nil || !strings.Contains(err.Error(), "more than 400 commands") {
		t.Error(err)
	}
}

func TestFileIsFetchedAndProved(t *testing.T) {
	file, text := fileOf(t, 10_000)
	sent := text
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "X-Amz-Signature=secret&a=b" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		_, _ = w.Write(sent)
	}))
	defer srv.Close()
	folder := filepath.Join(t.TempDir(), "root")
	ch := &watched{Channel: localChannel(t)}
	address := srv.URL + "/half?X-Amz-Signature=secret&a=b"
	if err := file.Fetch(t.Context(), ch, address, folder); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(folder, "in-"+file.sum)); !bytes.Equal(got, text) {
		t.Errorf("%d bytes", len(got))
	}
	if strings.Contains(ch.words, "secret") {
		t.Error("the address stands on a command line")
	}
	sent = append([]byte("x"), text[1:]...)
	if err := file.Fetch(t.Context(), ch, address, folder); err == nil || !strings.Contains(err.Error(), "arrived changed") {
		t.Errorf("another file: %v", err)
	}
	if err := file.Fetch(t.Context(), ch, srv.URL, folder); report.CodeOf(err) != report.ExitUnfinished || err == nil {
		t.Errorf("refused: %v", err)
	}
	if err := file.Fetch(t.Context(), ch, address+"\"\noutput = /etc/x", folder); err == nil {
		t.Error("an address with a line of its own was taken")
	}
}

type watched struct {
	remote.Channel
	words string
}

func (w *watched) Run(ctx context.Context, cmd remote.Cmd) (int, error) {
	w.words += strings.Join(cmd.Argv, " ")
	return w.Channel.Run(ctx, cmd)
}
