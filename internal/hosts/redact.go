package hosts

import "regexp"

var (
	userinfo = regexp.MustCompile(`://[^/?#\s]*@`)
	query    = regexp.MustCompile(`(://[^?\s]*)\?\S*`)
	words    = regexp.MustCompile(`(?i)\b(\w*(?:password|passwd|pwd|secret|token|key))=\S+`)
)

// redact blacks out what may be a secret in a value that is shown: the user
// part and query of a URL or DSN, and password=… words.
func redact(s string) string {
	s = userinfo.ReplaceAllString(s, "://***@")
	s = query.ReplaceAllString(s, "$1?***")
	return words.ReplaceAllString(s, "$1=***")
}
