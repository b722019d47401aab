package report

import (
	"encoding/json"
	"io"
)

// writeJSON prints one document and nothing else (case B61).
func writeJSON(w io.Writer, document any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(document)
}
