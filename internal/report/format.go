package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Style says how the reader looks at the output.
type Style struct {
	Colour bool // a terminal that wants colours
	Width  int  // columns of the terminal; 0: none, and no table is fitted to it
}

// New makes the report of one host's rows; its exit code is their verdict.
func New(host, level, release string, rows []Row, strict bool) Report {
	if rows == nil {
		rows = []Row{}
	}
	return Report{V: 1, Host: host, Level: level, Release: release, Rows: rows, Summary: Count(rows), Exit: Verdict(rows, strict)}
}

// Formats are the names that Write knows; the first is the default.
func Formats() []string { return []string{"table", "json", "junit", "tap", "nagios", "html"} }

// CheckFormat refuses a name that Write would not know.
func CheckFormat(name string) error {
	if !slices.Contains(Formats(), name) {
		return Coded(ExitUsage, "%q is no format: %s", name, strings.Join(Formats(), ", "))
	}
	return nil
}

// Write prints r. Every format shows every row; none computes a verdict.
func (r Report) Write(w io.Writer, format string, style Style) error {
	switch format {
	case "table":
		return r.writeTable(w, style)
	case "json":
		return writeJSON(w, r)
	}
	return writeDocument(w, format, []Report{r}, r.Exit)
}

// writeDocument prints the formats that are the same for one host and several.
func writeDocument(w io.Writer, format string, reports []Report, exit int) error {
	switch format {
	case "junit":
		return writeJUnit(w, reports)
	case "tap":
		return writeTAP(w, reports)
	case "nagios":
		return writeNagios(w, reports, exit)
	case "html":
		return writeHTML(w, reports, exit)
	}
	return CheckFormat(format)
}

// name is a row's check with its slot: "runner-reachable [slot01]".
func (r Row) name() string {
	if r.Slot == "" {
		return r.Check
	}
	return r.Check + " [" + r.Slot + "]"
}

// line is a FAIL or ERROR row that stands alone, with its way out.
func (r Row) line() string {
	return fmt.Sprintf("%s %s: %s", r.State, Escape(r.name()), Escape(r.Detail)) + r.way()
}

// way is a row's fix as it ends a line; empty where there is none.
func (r Row) way() string {
	if r.Fix == nil {
		return ""
	}
	return " -- " + r.Fix.Line()
}

// note is a row of another state that stands alone: the detail follows without a
// colon, since it often names a file with one of its own.
func (r Row) note() string {
	return fmt.Sprintf("%s %s %s", r.State, Escape(r.name()), Escape(r.Detail)) + r.way()
}

// alone is the form of a row's state.
func (r Row) alone() string {
	if r.State == Fail || r.State == Error {
		return r.line()
	}
	return r.note()
}

// bad says whether a row makes the report's exit code what it is: a FAIL, an
// ERROR, or a WARN of a strict run.
func (r Report) bad(row Row) bool {
	strict := r.Exit == ExitState && r.Summary.Failed == 0
	return row.State == Fail || row.State == Error || row.State == Warn && strict
}

// summary is the line that people look for.
func (s Summary) line() string {
	line := fmt.Sprintf("slot self-test: %d passed, %d failed, %d skipped", s.Passed, s.Failed, s.Skipped)
	if s.NotChecked > 0 {
		line += fmt.Sprintf(", %d not checked", s.NotChecked)
	}
	return line
}
