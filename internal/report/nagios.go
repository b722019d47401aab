package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// writeNagios prints a plugin's answer: one status line with performance data,
// then the bad rows. The exit code is the report's own, the same as in every
// format; the status line says which state to show.
func (r Report) writeNagios(w io.Writer) error {
	out := bufio.NewWriter(w)
	state := "OK"
	switch {
	case r.Exit == ExitState:
		state = "CRITICAL"
	case r.Exit != ExitOK:
		state = "UNKNOWN"
	case r.Summary.Warned > 0:
		state = "WARNING"
	}
	s := r.Summary
	fmt.Fprintf(out, "SLOTCHECK %s - %s: %s | passed=%d failed=%d warned=%d skipped=%d not_checked=%d\n",
		state, Escape(r.Host), s.line(), s.Passed, s.Failed, s.Warned, s.Skipped, s.NotChecked)
	for _, row := range r.Rows {
		switch row.State {
		case Fail, Error:
			fmt.Fprintln(out, nagiosText(row.line()))
		case Warn:
			fmt.Fprintln(out, nagiosText(row.note()))
		}
	}
	return out.Flush()
}

// nagiosText keeps "|", which would begin performance data, out of a line.
func nagiosText(s string) string { return strings.ReplaceAll(s, "|", `\x7c`) }
