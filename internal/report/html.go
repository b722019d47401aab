package report

import (
	_ "embed"
	"fmt"
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

// writeHTML prints one self-contained file; several hosts stand below each other.
func writeHTML(w io.Writer, reports []Report, exit int) error {
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return err
	}
	for n := range doc.Descendants() {
		switch n.DataAtom {
		case atom.Title:
			if len(reports) == 1 {
				add(n, ": "+Escape(reports[0].Host))
			} else {
				add(n, ": "+count(len(reports), "host"))
			}
		case atom.Body:
			heading := atom.H1
			if len(reports) != 1 {
				heading = atom.H2
				add(n, overview(reports, exit)...)
			}
			for _, r := range reports {
				add(n, r.body(heading)...)
			}
		}
	}
	return html.Render(w, doc)
}

// verdictClass is the look of an exit code.
func verdictClass(exit int) string {
	switch exit {
	case ExitOK:
		return "good"
	case ExitState:
		return "wrong"
	}
	return "unknown"
}

// overview says which hosts are right.
func overview(reports []Report, exit int) []any {
	good := 0
	rows := element(atom.Tbody, "")
	for _, r := range reports {
		if r.Exit == ExitOK {
			good++
		}
		add(rows, "\n", element(atom.Tr, "", element(atom.Td, "", Escape(r.Host)), element(atom.Td, verdictClass(r.Exit), strconv.Itoa(r.Exit)), element(atom.Td, "", r.Summary.line())))
	}
	head := element(atom.Tr, "", element(atom.Th, "", "Host"), element(atom.Th, "", "Exit code"), element(atom.Th, "", "Result"))
	return []any{
		"\n", element(atom.H1, "", "Slot self-test: "+count(len(reports), "host")),
		"\n", element(atom.P, "verdict "+verdictClass(exit), fmt.Sprintf("%d all right, %d not; exit code %d", good, len(reports)-good, exit)),
		"\n", element(atom.Table, "", element(atom.Thead, "", head), rows), "\n",
	}
}

func (r Report) body(heading atom.Atom) []any {
	facts := element(atom.Dl, "")
	for _, f := range [...][2]string{{"Level", r.Level}, {"Release", r.Release}, {"Exit code", strconv.Itoa(r.Exit)}} {
		if f[1] != "" {
			add(facts, element(atom.Dt, "", f[0]), element(atom.Dd, "", Escape(f[1])))
		}
	}
	parts := []any{
		"\n", element(heading, "", "Slot self-test: "+Escape(r.Host)),
		"\n", element(atom.P, "verdict "+verdictClass(r.Exit), r.Summary.line()),
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
