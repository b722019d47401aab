package report

import (
	"strings"
	"unicode/utf8"
)

// gap stands between two columns.
const gap = 2

// fitted are the rows with what is too wide on lines of its own. The widest
// columns give way first, and none more than its longest word allows: a path can
// be copied from every table.
func (t *Table) fitted() [][]string {
	wide, least := t.columns()
	over := gap*(len(wide)-1) - t.width
	for _, n := range wide {
		over += n
	}
	if t.width <= 0 || over <= 0 {
		return t.rows
	}
	for ; over > 0; over-- {
		widest := -1
		for i := range wide {
			if wide[i] > least[i] && (widest < 0 || wide[i] >= wide[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		wide[widest]--
	}
	var rows [][]string
	for _, row := range t.rows {
		rows = append(rows, wrapped(row, wide)...)
	}
	return rows
}

// columns says how wide each column is, and how wide it must be.
func (t *Table) columns() (wide, least []int) {
	grow := func(list *[]int, i, n int) {
		for len(*list) <= i {
			*list = append(*list, 0)
		}
		(*list)[i] = max((*list)[i], n)
	}
	for i, title := range t.header {
		grow(&wide, i, utf8.RuneCountInString(title))
		grow(&least, i, utf8.RuneCountInString(title))
	}
	for _, row := range t.rows {
		for i, cell := range row {
			grow(&wide, i, utf8.RuneCountInString(cell))
			for word := range strings.SplitSeq(cell, " ") {
				grow(&least, i, utf8.RuneCountInString(word))
			}
		}
	}
	return wide, least
}

// wrapped is a row as the lines that it takes in columns of these widths.
func wrapped(row []string, wide []int) [][]string {
	var lines [][]string
	for i, cell := range row {
		for n, text := range wrap(cell, wide[i]) {
			if n == len(lines) {
				lines = append(lines, make([]string, len(row)))
			}
			lines[n][i] = text
		}
	}
	return lines
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for i, word := range strings.Split(text, " ") {
		switch {
		case i == 0:
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}
