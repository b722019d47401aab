package report

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress prints the lines of a working command with the elapsed time, so that
// a person (or a CI system that ends silent jobs) sees which step it is in (case
// B37).
type Progress struct {
	w     io.Writer
	start time.Time

	mu      sync.Mutex
	partial []byte
}

// NewProgress writes to w, which is standard error.
func NewProgress(w io.Writer) *Progress { return &Progress{w: w, start: time.Now()} }

// Write takes the lines of the on-host half, whatever pieces they come in.
func (p *Progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.partial = append(p.partial, b...)
	for {
		i := bytes.IndexByte(p.partial, '\n')
		if i < 0 {
			return len(b), nil
		}
		p.line(p.partial[:i])
		p.partial = p.partial[i+1:]
	}
}

// Close prints what the half left without a line end. Lines may still follow.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.partial) > 0 {
		p.line(p.partial)
		p.partial = nil
	}
}

func (p *Progress) line(text []byte) {
	fmt.Fprintf(p.w, "[%6.1fs] %s\n", time.Since(p.start).Seconds(), Escape(string(text)))
}
