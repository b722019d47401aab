package report

import (
	"fmt"
	"io"
	"strings"
)

// WriteSteps prints the rows of a verb that changes a host, one steady line
// each, and a last line that counts them. Rows of an audit within them (a
// deploy's refusals, warnings) keep their own form.
func WriteSteps(w io.Writer, verb string, rows []Row, style Style) error {
	counts := map[State]int{}
	for _, row := range rows {
		counts[row.State]++
	}
	return style.print(w, lines(rows)+fmt.Sprintf("%s: %s\n", verb, stepCounts(counts)))
}

// WriteRows prints rows that each stand alone, and nothing else.
func WriteRows(w io.Writer, rows []Row, style Style) error {
	var out strings.Builder
	for _, row := range rows {
		fmt.Fprintln(&out, row.alone())
	}
	return style.print(w, out.String())
}

func lines(rows []Row) string {
	var out strings.Builder
	for _, row := range rows {
		switch row.State {
		case Fail, Error, Warn, Info:
			fmt.Fprintln(&out, row.alone())
		default:
			slot := row.Slot
			if slot == "" {
				slot = "-"
			}
			fmt.Fprintf(&out, "%-7s  %-20s  %-7s  %s\n", row.State, Escape(row.Check), Escape(slot), Escape(row.Detail))
		}
	}
	return out.String()
}

func stepCounts(counts map[State]int) string {
	var parts []string
	for _, c := range []struct {
		state State
		text  string
	}{
		{Planned, "would change"}, {Changed, "changed"}, {OK, "already as asked"}, {Skip, "skipped"}, {Warn, "warned"}, {Fail, "failed"}, {Error, "not checked"},
	} {
		if n := counts[c.state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c.text))
		}
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	if counts[Changed]+counts[Planned]+counts[Fail]+counts[Error] == 0 {
		return "nothing to do, " + strings.Join(parts, ", ")
	}
	return strings.Join(parts, ", ")
}
