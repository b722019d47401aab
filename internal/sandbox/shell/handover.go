package shell

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// handover gives a request to the chain on its standard input, and knows
// whether anybody took it. sudo takes nothing and gives the descriptor to
// slotctl, which reads all of it before it starts anything: a request that lies
// there untouched means that sudo started nothing, whatever it wrote.
type handover struct {
	reader, writer *os.File
	sent           atomic.Int64
	done           chan struct{} // closed when nothing more is written
}

func newHandover(request []byte) (*handover, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("hand the request over: %w", err)
	}
	h := &handover{reader: r, writer: w, done: make(chan struct{})}
	go func() {
		// An error is that nobody reads on: what was sent counts.
		n, _ := w.Write(request)
		h.sent.Store(int64(n))
		w.Close()
		close(h.done)
	}()
	return h, nil
}

// begun says whether the chain has taken the request. It is sure only once the
// program at its end runs.
func (h *handover) begun() bool { return h.sent.Load() > h.left() }

// taken is begun once the chain has ended.
func (h *handover) taken() bool {
	// What nobody reads any more may still be on its way into the pipe. The
	// error is that it is closed, and so there is nothing to stop.
	_ = h.writer.SetWriteDeadline(time.Now())
	<-h.done
	return h.begun()
}

func (h *handover) left() int64 {
	n, err := unix.IoctlGetInt(int(h.reader.Fd()), unix.TIOCINQ)
	if err != nil {
		return 0 // no pipe has no such count
	}
	return int64(n)
}

func (h *handover) close() {
	h.reader.Close()
	_ = h.writer.SetWriteDeadline(time.Now())
	<-h.done
}

// gate holds what is written to it back until open says that it is the
// command's, or until it is released. What sudo itself says does not belong to
// the command.
type gate struct {
	mu   sync.Mutex
	to   io.Writer
	open func() bool
	held []byte
	free bool
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.free && !g.open() {
		g.held = append(g.held, p...)
		return len(p), nil
	}
	if err := g.flush(); err != nil {
		return 0, err
	}
	return g.to.Write(p)
}

// release lets everything through from now on.
func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	// The caller's writer failed: there is nobody to tell.
	_ = g.flush()
}

func (g *gate) flush() error {
	g.free = true
	text := g.held
	g.held = nil
	if len(text) == 0 {
		return nil
	}
	_, err := g.to.Write(text)
	return err
}

// firstLine is the first line held back.
func (g *gate) firstLine() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	line, _, _ := strings.Cut(strings.TrimSpace(string(g.held)), "\n")
	if line == "" {
		return "it said nothing"
	}
	return line
}
