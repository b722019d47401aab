package report

import (
	"encoding/xml"
	"io"
)

// The JUnit schema that CI systems read, as far as an audit needs it.
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
	Notes    string      `xml:"system-out,omitempty"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitProblem `xml:"failure"`
	Error   *junitProblem `xml:"error"`
	Skipped *junitProblem `xml:"skipped"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitProblem struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// junit is a case a row; INFO rows are no tests and stand below.
func (r Report) junit() junitSuite {
	suite := junitSuite{Name: "slotcheck " + Escape(r.Host)}
	for _, row := range r.Rows {
		if row.State == Info {
			suite.Notes += row.note() + "\n"
			continue
		}
		c := junitCase{Class: "slotcheck." + Escape(r.Host), Name: Escape(row.name())}
		problem := &junitProblem{Message: Escape(row.Detail), Text: row.line()}
		switch {
		case row.State == Error:
			suite.Errors++
			c.Error = problem
		case row.State == Skip:
			suite.Skipped++
			c.Skipped = &junitProblem{Message: Escape(row.Detail)}
		case r.bad(row):
			suite.Failures++
			c.Failure = problem
		default:
			c.Out = string(row.State) + " " + Escape(row.Detail)
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Tests = len(suite.Cases)
	return suite
}

// writeJUnit prints a suite a host.
func writeJUnit(w io.Writer, reports []Report) error {
	var all junitSuites
	for _, r := range reports {
		suite := r.junit()
		all.Tests, all.Failures, all.Errors = all.Tests+suite.Tests, all.Failures+suite.Failures, all.Errors+suite.Errors
		all.Suites = append(all.Suites, suite)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	err := enc.Encode(all)
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	return err
}
