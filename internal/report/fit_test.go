package report

import (
	"strings"
	"testing"
)

func TestTablesFitATerminal(t *testing.T) {
	const path = "/srv/vs/data/docs/Workflow/a-name-that-is-very-long-indeed-and-has-no-blank"
	for name, c := range map[string]struct {
		width int
		want  string
	}{
		"no terminal": {0, "NAME  STORY                              LAST\none   a short story that has many words  x\ntwo   shorter                            y\n"},
		"wide enough": {45, "NAME  STORY                              LAST\none   a short story that has many words  x\ntwo   shorter                            y\n"},
		"too narrow":  {30, "NAME  STORY               LAST\none   a short story that  x\n      has many words\ntwo   shorter             y\n"},
		"words whole": {5, "NAME  STORY    LAST\none   a short  x\n      story\n      that\n      has\n      many\n      words\ntwo   shorter  y\n"},
	} {
		table := NewTable("NAME", "STORY", "LAST").Fit(c.width)
		table.Add("one", "a short story that has many words", "x")
		table.Add("two", "shorter", "y")
		var out strings.Builder
		if err := table.Write(&out); err != nil || out.String() != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, out.String(), c.want)
		}
	}
	table := NewTable("A", "B").Fit(20)
	table.Add("see "+path, path)
	var out strings.Builder
	if err := table.Write(&out); err != nil || strings.Count(out.String(), path) != 2 {
		t.Errorf("%v\n%s", err, out.String())
	}
}
