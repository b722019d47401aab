package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// writeNagios prints a plugin's answer: one status line with performance data,
// then the bad rows. The exit code is the common one, the same as in every
// format; the status line says which state to show.
func writeNagios(w io.Writer, reports []Report, exit int) error {
	out := bufio.NewWriter(w)
	var s Summary
	good := 0
	for _, r := range reports {
		s = s.plus(r.Summary)
		if r.Exit == ExitOK {
			good++
		}
	}
	what, data := fmt.Sprintf("%d hosts, %d all right", len(reports), good), fmt.Sprintf("hosts=%d good=%d ", len(reports), good)
	if len(reports) == 1 {
		what, data = Escape(reports[0].Host), ""
	}
	fmt.Fprintf(out, "SLOTCHECK %s - %s: %s | %spassed=%d failed=%d warned=%d skipped=%d not_checked=%d\n",
		nagiosState(exit, s), nagiosText(what), s.line(), data, s.Passed, s.Failed, s.Warned, s.Skipped, s.NotChecked)
	for _, r := range reports {
		host := ""
		if len(reports) > 1 {
			host = Escape(r.Host) + ": "
		}
		for _, row := range r.Rows {
			switch row.State {
			case Fail, Error:
				fmt.Fprintln(out, nagiosText(host+row.line()))
			case Warn:
				fmt.Fprintln(out, nagiosText(host+row.note()))
			}
		}
	}
	return out.Flush()
}

func nagiosState(exit int, s Summary) string {
	switch {
	case exit == ExitState:
		return "CRITICAL"
	case exit != ExitOK:
		return "UNKNOWN"
	case s.Warned > 0:
		return "WARNING"
	}
	return "OK"
}

// nagiosText keeps "|", which would begin performance data, out of a line.
func nagiosText(s string) string { return strings.ReplaceAll(s, "|", `\x7c`) }
