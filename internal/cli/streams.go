package cli

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/term"
)

// pipe is an output whose reader may go away: after EPIPE writes are dropped in
// silence, so that "| head -1" ends with the verdict and without a message.
type pipe struct {
	w      io.Writer
	closed bool
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.closed {
		return len(b), nil
	}
	n, err := p.w.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		p.closed = true
		return len(b), nil
	}
	return n, err
}

// colour says whether w is a terminal that may get colours: https://no-color.org.
func (a *app) colour(w io.Writer) bool {
	if p, ok := w.(*pipe); ok {
		w = p.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}
