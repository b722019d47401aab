package report

import (
	"io"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Table is a plain table of words: no borders, left aligned, two spaces between
// the columns, no word wrapped or cut (case B73), no colours.
type Table struct {
	header []string
	rows   [][]string
	width  int // see Fit
}

// NewTable begins a table; without a header there is no header line.
func NewTable(header ...string) *Table { return &Table{header: header} }

// Add appends a row. Its words are escaped.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = Escape(c)
	}
	t.rows = append(t.rows, row)
}

// Fit lets the table use so many columns of a terminal: what is wider goes on in
// the next line. 0, which is no terminal, leaves each row one line.
func (t *Table) Fit(width int) *Table { t.width = width; return t }

// Write prints the table to w.
func (t *Table) Write(w io.Writer) error {
	if len(t.rows) == 0 && len(t.header) == 0 {
		return nil
	}
	out := &trimmed{w: w}
	cell := tw.CellConfig{
		Alignment:  tw.CellAlignment{Global: tw.AlignLeft},
		Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone, AutoFormat: tw.Off},
		Padding:    tw.CellPadding{Global: tw.Padding{Right: "  ", Overwrite: true}},
	}
	table := tablewriter.NewTable(out,
		tablewriter.WithConfig(tablewriter.Config{Header: cell, Row: cell, Behavior: tw.Behavior{TrimSpace: tw.Off}}),
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Lines: tw.LinesNone, Separators: tw.SeparatorsNone},
		})))
	if len(t.header) > 0 {
		table.Header(t.header)
	}
	if err := table.Bulk(t.fitted()); err != nil {
		return err
	}
	if err := table.Render(); err != nil {
		return err
	}
	return out.flush()
}
