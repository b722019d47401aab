package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// writeTAP prints the Test Anything Protocol, version 14: a test point a row,
// INFO rows as comments.
func (r Report) writeTAP(w io.Writer) error {
	out := bufio.NewWriter(w)
	points := 0
	for _, row := range r.Rows {
		if row.State != Info {
			points++
		}
	}
	fmt.Fprintf(out, "TAP version 14\n1..%d\n", points)
	n := 0
	for _, row := range r.Rows {
		if row.State == Info {
			fmt.Fprintf(out, "# %s\n", row.note())
			continue
		}
		n++
		result := "ok"
		if r.bad(row) {
			result = "not ok"
		}
		// A "#" would begin a directive.
		fmt.Fprintf(out, "%s %d - %s: %s", result, n, tapText(row.name()), tapText(row.Detail))
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
	fmt.Fprintf(out, "# %s\n", r.Summary.line())
	return out.Flush()
}

func tapText(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(Escape(s), `\`, `\\`), "#", `\#`)
}
