package report

import (
	_ "embed"
	"io"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// page is the frame of a report: one file that needs no other, without script,
// font or image. The report is built into its body as a tree and not with
// html/template, which would keep every method of every linked package alive
// and the program 8 MB larger.
//
//go:embed page.html
var page string

// writeHTML prints one self-contained file.
func (r Report) writeHTML(w io.Writer) error {
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return err
	}
	for n := range doc.Descendants() {
		switch n.DataAtom {
		case atom.Title:
			add(n, ": "+Escape(r.Host))
		case atom.Body:
			add(n, r.body()...)
		}
	}
	return html.Render(w, doc)
}

func (r Report) body() []any {
	class := "good"
	switch r.Exit {
	case ExitOK:
	case ExitState:
		class = "wrong"
	default:
		class = "unknown"
	}
	facts := element(atom.Dl, "")
	for _, f := range [...][2]string{{"Level", r.Level}, {"Release", r.Release}, {"Exit code", strconv.Itoa(r.Exit)}} {
		if f[1] != "" {
			add(facts, element(atom.Dt, "", f[0]), element(atom.Dd, "", Escape(f[1])))
		}
	}
	parts := []any{
		"\n", element(atom.H1, "", "Slot self-test: "+Escape(r.Host)),
		"\n", element(atom.P, "verdict "+class, r.Summary.line()),
		"\n", facts, "\n",
	}
	for _, cause := range r.causes() {
		parts = append(parts, element(atom.P, "", cause), "\n")
	}
	head := element(atom.Tr, "")
	for _, title := range [...]string{"State", "Check", "Slot", "Detail and fix"} {
		add(head, element(atom.Th, "", title))
	}
	rows := element(atom.Tbody, "")
	for _, row := range r.Rows {
		detail := element(atom.Td, "detail", Escape(row.Detail))
		add(detail, htmlFix(row.Fix)...)
		add(rows, "\n", element(atom.Tr, "", element(atom.Td, string(row.State), string(row.State)), element(atom.Td, "", Escape(row.Check)), element(atom.Td, "", Escape(row.Slot)), detail))
	}
	return append(parts, element(atom.Table, "", element(atom.Thead, "", head), rows), "\n")
}

func htmlFix(f *Fix) []any {
	if f == nil {
		return nil
	}
	where := "as root on the host"
	if f.Where == Operator {
		where = "where you sit"
	}
	parts := []any{element(atom.Br, "")}
	if command := f.Command(); command != "" {
		parts = append(parts, element(atom.Span, "where", "fix, "+where+":"), " ", element(atom.Code, "", command))
	}
	if f.Note != "" {
		parts = append(parts, " ", element(atom.Span, "where", Escape(f.Note)))
	}
	return parts
}

// element makes a node; children are nodes and texts.
func element(tag atom.Atom, class string, children ...any) *html.Node {
	n := &html.Node{Type: html.ElementNode, DataAtom: tag, Data: tag.String()}
	if class != "" {
		n.Attr = []html.Attribute{{Key: "class", Val: class}}
	}
	add(n, children...)
	return n
}

func add(parent *html.Node, children ...any) {
	for _, c := range children {
		switch c := c.(type) {
		case *html.Node:
			parent.AppendChild(c)
		case string:
			parent.AppendChild(&html.Node{Type: html.TextNode, Data: c})
		}
	}
}
