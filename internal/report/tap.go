package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// writeTAP prints the Test Anything Protocol, version 14: one plan, a test point
// a row, INFO rows as comments. The points of several hosts begin with the host.
func writeTAP(w io.Writer, reports []Report) error {
	out := bufio.NewWriter(w)
	points := 0
	for _, r := range reports {
		for _, row := range r.Rows {
			if row.State != Info {
				points++
			}
		}
	}
	fmt.Fprintf(out, "TAP version 14\n1..%d\n", points)
	n := 0
	for _, r := range reports {
		host := ""
		if len(reports) > 1 {
			host = Escape(r.Host) + ": "
		}
		n = r.tap(out, host, n)
	}
	return out.Flush()
}

// tap prints the points of one host after the first n, and counts on.
func (r Report) tap(out io.Writer, host string, n int) int {
	for _, row := range r.Rows {
		if row.State == Info {
			fmt.Fprintf(out, "# %s%s\n", host, row.note())
			continue
		}
		n++
		result := "ok"
		if r.bad(row) {
			result = "not ok"
		}
		// A "#" would begin a directive.
		fmt.Fprintf(out, "%s %d - %s%s: %s", result, n, tapText(host), tapText(row.name()), tapText(row.Detail))
		switch {
		case row.State == Skip:
			fmt.Fprintf(out, " # SKIP %s", tapText(row.Detail))
		case row.Fix != nil:
			fmt.Fprintf(out, "\n# %s %s", row.State, row.Fix.Line())
		case row.State == Warn, row.State == Error:
			fmt.Fprintf(out, "\n# %s", row.State)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "# %s%s\n", host, r.Summary.line())
	return n
}

func tapText(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(Escape(s), `\`, `\\`), "#", `\#`)
}
