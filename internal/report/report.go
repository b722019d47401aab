// Package report holds what every verb answers with: rows, the verdict over
// them, the exit codes, and the formats they are printed in. It knows nothing
// of hosts, channels or checks, and imports nothing else of this project.
package report

// State says how one row ended. The first six belong to audits, the last three
// to verbs that change a host.
type State string

// The states of a row. ERROR means that the check itself could not run: it is
// never counted as a pass, and never as a failure of the host.
const (
	Pass  State = "PASS"
	Fail  State = "FAIL"
	Warn  State = "WARN"
	Skip  State = "SKIP"
	Error State = "ERROR"
	Info  State = "INFO"

	OK      State = "OK"      // already as asked, nothing touched
	Changed State = "CHANGED" // was not, is now
	Planned State = "PLANNED" // would be changed (--plan)
)

// Row is one line of an answer. Slot is empty where the row is about the host.
type Row struct {
	State  State  `json:"state"`
	Check  string `json:"check"`
	Slot   string `json:"slot,omitempty"`
	Detail string `json:"detail"`
	Fix    *Fix   `json:"fix,omitempty"`
	// Cause groups rows that fail for one shared reason; rows of one cause
	// carry the same non-empty text ("/srv/vs/releases is not traversable").
	Cause string `json:"cause,omitempty"`
}

// Where a fix is to be run.
const (
	OnHost   = "host"     // as root on the host
	Operator = "operator" // where the person sits
)

// Fix is the way out of a FAIL: a word list, never a shell line, with the place
// to run it. Note stands where no runnable command can be given (a path with
// control bytes, a fix that needs a decision); Argv is empty then.
type Fix struct {
	Where string   `json:"where"`
	Argv  []string `json:"argv,omitempty"`
	Note  string   `json:"note,omitempty"`
}

// Summary counts the rows of an audit.
type Summary struct {
	Passed     int `json:"passed"`
	Failed     int `json:"failed"`
	Warned     int `json:"warned"`
	Skipped    int `json:"skipped"`
	NotChecked int `json:"not_checked"`
}

// Report is the one document an audit prints; see "Release, health, report" in
// docs/formats.md. V is 1.
type Report struct {
	V       int     `json:"v"`
	Host    string  `json:"host"`
	Level   string  `json:"level,omitempty"`
	Release string  `json:"release,omitempty"`
	Rows    []Row   `json:"rows"`
	Summary Summary `json:"summary"`
	Exit    int     `json:"exit"`
}

// Count sums the rows up; INFO, OK, CHANGED and PLANNED rows are not counted.
func Count(rows []Row) Summary {
	var s Summary
	for _, r := range rows {
		switch r.State {
		case Pass:
			s.Passed++
		case Fail:
			s.Failed++
		case Warn:
			s.Warned++
		case Skip:
			s.Skipped++
		case Error:
			s.NotChecked++
		}
	}
	return s
}

func (s Summary) plus(o Summary) Summary {
	return Summary{s.Passed + o.Passed, s.Failed + o.Failed, s.Warned + o.Warned, s.Skipped + o.Skipped, s.NotChecked + o.NotChecked}
}

// Verdict is the exit code of one host's rows: a FAIL outranks an ERROR
// (1 before 3); WARN counts as a failure only when strict. It is the only place
// where rows become a code, whatever the format (cases B59, B85).
func Verdict(rows []Row, strict bool) int {
	s := Count(rows)
	switch {
	case s.Failed > 0, strict && s.Warned > 0:
		return ExitState
	case s.NotChecked > 0:
		return ExitUnfinished
	}
	return ExitOK
}
