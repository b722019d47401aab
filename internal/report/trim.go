package report

import (
	"bytes"
	"io"
)

// trimmed drops the blanks at the end of each line on its way to w.
type trimmed struct {
	w   io.Writer
	buf bytes.Buffer
}

func (t *trimmed) Write(p []byte) (int, error) { return t.buf.Write(p) }

func (t *trimmed) flush() error {
	for line := range bytes.Lines(t.buf.Bytes()) {
		line = append(bytes.TrimRight(line, " \n"), '\n')
		if _, err := t.w.Write(line); err != nil {
			return err
		}
	}
	return nil
}
