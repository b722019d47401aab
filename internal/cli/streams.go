package cli

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/term"

	"agentworks-deploy/internal/report"
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

// style is how results look on standard output: a terminal gets tables of its
// width and, unless it says otherwise (https://no-color.org), colours.
func (a *app) style() report.Style {
	w := a.stdout
	if p, ok := w.(*pipe); ok {
		w = p.w
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return report.Style{}
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = 0
	}
	return report.Style{Colour: a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb", Width: width}
}
