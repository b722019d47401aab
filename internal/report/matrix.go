package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// wide is how many hosts stand beside each other in a matrix.
const wide = 8

// Fleet is the one document of an audit of several hosts. V is 1.
type Fleet struct {
	V       int      `json:"v"`
	Reports []Report `json:"reports"`
	Exit    int      `json:"exit"`
}

// Write prints f as one document of the format; a table is the matrix alone. As
// with one report, every format shows every row and none computes a verdict.
func (f Fleet) Write(w io.Writer, format string, style Style) error {
	switch format {
	case "table":
		return WriteMatrix(w, f.Reports, style)
	case "json":
		return writeJSON(w, f)
	}
	return writeDocument(w, format, f.Reports, f.Exit)
}

// gravest orders states by what a reader must see first.
var gravest = []State{Fail, Error, Warn, Changed, Planned, Pass, OK, Skip, Info}

// WriteMatrix prints checks against hosts, each cell the gravest state of the
// check there. Many hosts become one line each, with the checks that are bad.
func WriteMatrix(w io.Writer, reports []Report, style Style) error {
	if len(reports) > wide {
		return writeLines(w, reports, style)
	}
	header := []string{"CHECK"}
	var checks []string
	cells := make([]map[string]State, len(reports))
	for i, r := range reports {
		header = append(header, Escape(r.Host))
		cells[i] = map[string]State{}
		for _, row := range r.Rows {
			if !slices.Contains(checks, row.Check) {
				checks = append(checks, row.Check)
			}
			cells[i][row.Check] = graver(cells[i][row.Check], row.State)
		}
	}
	table := NewTable(header...)
	for _, check := range checks {
		line := []string{check}
		for i := range reports {
			state := string(cells[i][check])
			if state == "" {
				state = "-"
			}
			line = append(line, state)
		}
		table.Add(line...)
	}
	last := []string{"exit"}
	for _, r := range reports {
		last = append(last, strconv.Itoa(r.Exit))
	}
	table.Add(last...)
	return table.Write(w)
}

func graver(a, b State) State {
	if a == "" || slices.Index(gravest, b) < slices.Index(gravest, a) {
		return b
	}
	return a
}

func writeLines(w io.Writer, reports []Report, style Style) error {
	table := NewTable("HOST", "EXIT", "PASSED", "FAILED", "WARNED", "SKIPPED", "NOT CHECKED", "BAD CHECKS").Fit(style.Width)
	good := 0
	for _, r := range reports {
		var bad []string
		for _, row := range r.Rows {
			if r.bad(row) && !slices.Contains(bad, row.Check) {
				bad = append(bad, row.Check)
			}
		}
		if r.Exit == ExitOK {
			good++
		}
		s := r.Summary
		table.Add(r.Host, strconv.Itoa(r.Exit), strconv.Itoa(s.Passed), strconv.Itoa(s.Failed), strconv.Itoa(s.Warned), strconv.Itoa(s.Skipped), strconv.Itoa(s.NotChecked), strings.Join(bad, " "))
	}
	if err := table.Write(w); err != nil {
		return err
	}
	return style.print(w, fmt.Sprintf("hosts: %d all right, %d not\n", good, len(reports)-good))
}
