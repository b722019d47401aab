package hosts

var (
	userinfo = newRule(`://[^/?#\s]*@`)
	query    = newRule(`(://[^?\s]*)\?\S*`)
	words    = newRule(`(?i)\b(\w*(?:password|passwd|pwd|secret|token|key))=\S+`)
)

// redact blacks out what may be a secret in a value that is shown: the user
// part and query of a URL or DSN, and password=… words.
func redact(s string) string {
	s = userinfo.compile().ReplaceAllString(s, "://***@")
	s = query.compile().ReplaceAllString(s, "$1?***")
	return words.compile().ReplaceAllString(s, "$1=***")
}
