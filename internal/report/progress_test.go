package report

import (
	"bytes"
	"regexp"
	"testing"
)

func TestProgressLinesAreWholeAndEscaped(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out)
	for _, piece := range []string{"half a ", "line\nand \x1b[31mred\n", "no end"} {
		if _, err := p.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	p.Close()
	p.Close()
	times := regexp.MustCompile(`(?m)^\[ +\d+\.\ds\] `)
	want := "half a line\nand \\x1b[31mred\nno end\n"
	if got := times.ReplaceAllString(out.String(), ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
