package report

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress prints lines with the elapsed time while a command works, so that a
// person (or a CI system that ends silent jobs) sees which step it is in (case
// B37). On a terminal the current step is one line that is drawn over.
type Progress struct {
	w        io.Writer
	terminal bool
	start    time.Time

	mu      sync.Mutex
	current string // the open step
	began   time.Time
	drawn   bool // the terminal's last line is a drawn one
	partial []byte
}

// heartbeat is how long a step may stay silent off a terminal.
const heartbeat = 10 * time.Second

// NewProgress writes to w, which is standard error.
func NewProgress(w io.Writer, terminal bool) *Progress {
	return &Progress{w: w, terminal: terminal, start: time.Now()}
}

// Step begins a step; the returned function ends it. Between them a heartbeat
// says that it is still under way. Steps do not nest.
func (p *Progress) Step(format string, args ...any) (end func()) {
	p.mu.Lock()
	p.current, p.began = Escape(fmt.Sprintf(format, args...)), time.Now()
	p.show(p.current)
	p.mu.Unlock()

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		every := heartbeat
		if p.terminal {
			every = time.Second
		}
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				p.mu.Lock()
				p.show(fmt.Sprintf("%s … %s", p.current, time.Since(p.began).Round(time.Second)))
				p.mu.Unlock()
			}
		}
	}()
	var once sync.Once
	return func() {
		once.Do(func() {
			close(stop)
			<-stopped
			p.mu.Lock()
			defer p.mu.Unlock()
			p.current = ""
			p.clear()
		})
	}
}

// Line prints one line that stays.
func (p *Progress) Line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stay(fmt.Sprintf(format, args...))
}

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
		p.stay(string(p.partial[:i]))
		p.partial = p.partial[i+1:]
	}
}

// Close ends a drawn line and prints what the half left without a line end.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	if len(p.partial) > 0 {
		p.stay(string(p.partial))
		p.partial = nil
	}
}

func (p *Progress) stay(line string) {
	p.clear()
	fmt.Fprintf(p.w, "%s %s\n", p.elapsed(), Escape(line))
}

func (p *Progress) show(line string) {
	if !p.terminal {
		fmt.Fprintf(p.w, "%s %s\n", p.elapsed(), line)
		return
	}
	p.clear()
	fmt.Fprintf(p.w, "%s %s", p.elapsed(), line)
	p.drawn = true
}

// clear wipes the drawn line: carriage return, erase to the end of the line.
func (p *Progress) clear() {
	if p.drawn {
		io.WriteString(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

func (p *Progress) elapsed() string {
	return fmt.Sprintf("[%6.1fs]", time.Since(p.start).Seconds())
}
