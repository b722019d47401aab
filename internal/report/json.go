package report

import (
	"encoding/json"
	"io"
)

// writeJSON prints one document and nothing else (case B61).
func (r Report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
