package report

import (
	"fmt"
	"io"
	"strings"
)

// writeTable prints the audit's table, then the causes that several slots share,
// each FAIL and ERROR as a line that can be read alone, the summary, and last the
// WARN and INFO lines.
func (r Report) writeTable(w io.Writer, style Style) error {
	// The headers are as wide as the usual contents, so that the columns of two
	// runs stand in the same place.
	table := NewTable("    ", "CHECK               ", "SLOT   ", "DETAIL").Fit(style.Width)
	var alone, notes []string
	warned, noted := 0, 0
	for _, row := range r.Rows {
		switch row.State {
		case Warn:
			warned++
			notes = append(notes, row.note())
			continue
		case Info:
			noted++
			notes = append(notes, row.note())
			continue
		case Fail, Error:
			alone = append(alone, row.line())
		}
		slot := row.Slot
		if slot == "" {
			slot = "-"
		}
		table.Add(string(row.State), row.Check, slot, row.Detail)
	}
	var out strings.Builder
	if len(table.rows) > 0 {
		if err := table.Write(&out); err != nil {
			return err
		}
	}
	for _, line := range append(r.causes(), alone...) {
		fmt.Fprintln(&out, line)
	}
	fmt.Fprintln(&out, r.Summary.line())
	for _, line := range notes {
		fmt.Fprintln(&out, line)
	}
	if len(notes) > 0 {
		fmt.Fprintf(&out, "%s, %s\n", count(warned, "warning"), count(noted, "note"))
	}
	return style.print(w, out.String())
}

// WriteNotes prints rows that are all notes, one line each, WARN before INFO,
// and a last line that counts them.
func WriteNotes(w io.Writer, title string, rows []Row, style Style) error {
	var out strings.Builder
	n := map[State]int{}
	for _, state := range []State{Fail, Error, Warn, Info} {
		for _, row := range rows {
			if row.State == state {
				n[state]++
				fmt.Fprintln(&out, row.note())
			}
		}
	}
	fmt.Fprintf(&out, "%s: %s, %s\n", title, count(n[Warn], "warning"), count(n[Info], "note"))
	return style.print(w, out.String())
}

// causes names each cause that several slots fail for, once (case B65), with
// their fix where they have the same.
func (r Report) causes() []string {
	var order []string
	slots := map[string]map[string]bool{}
	rows := map[string]int{}
	fix := map[string]string{}
	for _, row := range r.Rows {
		if row.State != Fail || row.Cause == "" || row.Slot == "" {
			continue
		}
		if slots[row.Cause] == nil {
			slots[row.Cause] = map[string]bool{}
			order = append(order, row.Cause)
			fix[row.Cause] = row.way()
		}
		if fix[row.Cause] != row.way() {
			fix[row.Cause] = ""
		}
		slots[row.Cause][row.Slot] = true
		rows[row.Cause]++
	}
	var lines []string
	for _, cause := range order {
		if n := len(slots[cause]); n > 1 {
			lines = append(lines, fmt.Sprintf("CAUSE %s: %s of %d slots", Escape(cause), count(rows[cause], "failure"), n)+fix[cause])
		}
	}
	return lines
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// print writes text, with the state that begins a line in its colour.
func (s Style) print(w io.Writer, text string) error {
	if s.Colour {
		var out strings.Builder
		for line := range strings.Lines(text) {
			word, rest, _ := strings.Cut(line, " ")
			if colour := colours(State(word)); colour != "" {
				line = fmt.Sprintf("\x1b[%sm%s\x1b[0m %s", colour, word, rest)
			}
			out.WriteString(line)
		}
		text = out.String()
	}
	_, err := io.WriteString(w, text)
	return err
}

func colours(s State) string {
	switch s {
	case Pass, OK:
		return "32"
	case Fail:
		return "1;31"
	case Warn, Skip, Planned:
		return "33"
	case Error:
		return "1;35"
	case Changed:
		return "36"
	}
	return ""
}
