package hosts

import (
	"fmt"
	"reflect"
	"strings"
)

// hostName is what a host file may be called, without .yaml.
var hostName = newRule(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// rules are what the `rule` tags of the schema name. The values end up in
// accounts, groups, unit files, sudo rules and mount options. What any of those
// would read in another way is refused here, once, instead of being quoted by
// five grammars (cases B05, B45).
var rules = map[string]*rule{
	"product":  newRule(`^[a-z][a-z0-9-]{0,22}[a-z0-9]$`),
	"prefix":   newRule(`^[a-z][a-z0-9]{0,15}$`),
	"path":     newRule(`^/[A-Za-z0-9_./+@-]+$`).saying("is not an absolute path of letters, digits and _./+@-: unit files, sudo rules and mounts would read it in another way"),
	"file":     newRule(`^/[A-Za-z0-9_./+@-]+$`).saying("is not an absolute path of letters, digits and _./+@-").hiding(),
	"unit":     newRule(`^[A-Za-z0-9_][A-Za-z0-9:_.@-]*$`),
	"lab":      newRule(`^[a-z0-9][a-z0-9-]{0,31}$`),
	"ssh":      newRule(`^[A-Za-z0-9_\[][A-Za-z0-9_.:@%\[\]-]*$`),
	"region":   newRule(`^[a-z]{2}(-[a-z]+)+-[0-9]$`),
	"aws":      newRule(`^[A-Za-z0-9_.:/@+-]+$`),
	"instance": newRule(`^m?i-[0-9a-f]{8,17}$`),
	"tag":      newRule(`^[^=]+=`).saying("is not key=value"),
	"share":    newRule(`^([1-9][0-9]{0,6}|[1-9][0-9]?%|100%|0)$`),
	"bucket":   newRule(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`),
	"env":      newRule(`^[A-Za-z_][A-Za-z0-9_]*$`),
	"group":    newRule(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`), // one segment of an API path
	"kv":       newRule(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`),
	"address":  newRule(`^(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*$`).saying("is not host:port"),
	"url":      newRule(`^[Hh][Tt][Tt][Pp][Ss]?://[^/?#]`).saying("is not an http or https address").hiding(), // it may hold a password
}

// bounds are what the tags of a field of Host ask of its value. Loading and the
// JSON Schema are made of the same ones.
type bounds struct {
	must      bool // `must:"what it is"`: is to be given where its section is
	what      string
	words     []string // `words:"a|b"`: one of them
	never     []string // `never:"a|b"`: none of them
	rule      *rule    // `rule:"name"`: a text, or each text of a list, matches it
	empty     bool     // `rule:"name?"`: or is empty
	ranged    bool     // `range:"1..998"`
	low, high int
	needs     string // `needs:"key"`: where this is not empty, that key of the section is not
}

func boundsOf(tag reflect.StructTag) bounds {
	b := bounds{needs: tag.Get("needs")}
	b.what, b.must = tag.Lookup("must")
	if words, ok := tag.Lookup("words"); ok {
		b.words = strings.Split(words, "|")
	}
	if words, ok := tag.Lookup("never"); ok {
		b.never = strings.Split(words, "|")
	}
	if name, ok := tag.Lookup("rule"); ok {
		name, b.empty = strings.CutSuffix(name, "?")
		b.rule = rules[name]
	}
	if text, ok := tag.Lookup("range"); ok {
		_, err := fmt.Sscanf(text, "%d..%d", &b.low, &b.high)
		b.ranged = err == nil
	}
	return b
}
