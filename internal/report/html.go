package report

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed page.html
var page string

type htmlPage struct {
	Host, Level, Release string
	Class, Verdict       string
	Exit                 int
	Causes               []string
	Rows                 []htmlRow
}

type htmlRow struct {
	State, Check, Slot, Detail string
	Fix                        *htmlFix
}

type htmlFix struct{ Where, Command, Note string }

// writeHTML prints one file that needs no other: no script, no font, no image.
func (r Report) writeHTML(w io.Writer) error {
	tmpl, err := template.New("page").Parse(page)
	if err != nil {
		return err
	}
	p := htmlPage{
		Host: Escape(r.Host), Level: Escape(r.Level), Release: Escape(r.Release),
		Class: "good", Verdict: r.Summary.line(), Exit: r.Exit, Causes: r.causes(),
	}
	switch r.Exit {
	case ExitOK:
	case ExitState:
		p.Class = "wrong"
	default:
		p.Class = "unknown"
	}
	for _, row := range r.Rows {
		h := htmlRow{State: string(row.State), Check: Escape(row.Check), Slot: Escape(row.Slot), Detail: Escape(row.Detail)}
		if row.Fix != nil {
			h.Fix = &htmlFix{Where: "as root on the host", Command: row.Fix.Command(), Note: Escape(row.Fix.Note)}
			if row.Fix.Where == Operator {
				h.Fix.Where = "where you sit"
			}
		}
		p.Rows = append(p.Rows, h)
	}
	return tmpl.Execute(w, p)
}
