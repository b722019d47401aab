package report

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

func TestProgressLinesAreWholeAndEscaped(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, false)
	end := p.Step("copy %d files", 3)
	for _, piece := range []string{"half a ", "line\nand \x1b[31mred\n", "no end"} {
		if _, err := p.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	end()
	p.Close()
	times := regexp.MustCompile(`(?m)^\[ +\d+\.\ds\] `)
	want := "copy 3 files\nhalf a line\nand \\x1b[31mred\nno end\n"
	if got := times.ReplaceAllString(out.String(), ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestProgressIsDrawnOverOnATerminalOnly(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out, true)
	p.Step("one")()
	p.Line("stays")
	end := p.Step("two")
	end()
	p.Close()
	if got := strings.Count(out.String(), "\r\x1b[K"); got != 2 {
		t.Errorf("drawn over %d times: %q", got, out.String())
	}
	if !strings.Contains(out.String(), "stays\n") || strings.HasSuffix(out.String(), "two") {
		t.Errorf("got %q", out.String())
	}
}
