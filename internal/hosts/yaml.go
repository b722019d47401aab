package hosts

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Problem is one fault of a host's settings and where it stands. File and Line
// are empty where the value came from elsewhere; Key may be empty for syntax.
type Problem struct {
	File string
	Line int
	Key  string
	Text string
}

func (p *Problem) Error() string {
	s := p.Text
	if p.Key != "" {
		s = p.Key + ": " + s
	}
	switch {
	case p.Line > 0:
		s = p.File + ":" + strconv.Itoa(p.Line) + ": " + s
	case p.File != "":
		s = p.File + ": " + s
	}
	return s
}

// Problems are all faults of one host; as an error they are the first one and a count.
type Problems struct{ List []*Problem }

func (p *Problems) Error() string {
	first := p.List[0].Error()
	if more := len(p.List) - 1; more > 0 {
		return fmt.Sprintf("%s (and %d more: see hosts validate)", first, more)
	}
	return first
}

// reader fills a Host from the syntax tree of a host file. The library's own
// decoder would let "count: 1.5", "mode: true" and "app:" (no value) pass in
// silence; here each value has the schema's type, and a key that is present
// counts even when it is empty.
type reader struct {
	file     string
	lines    map[string]int // key to the line it stands on
	problems []*Problem
	unread   map[string]bool // keys with a problem, and those that were probably meant
}

// readYAML sets in h what data sets. The reader knows the line of each key, and
// what was wrong; an error is that of a text in which no key can be told.
func readYAML(h *Host, file string, data []byte) (*reader, error) {
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		var y yaml.Error
		if !errors.As(err, &y) {
			return nil, &Problem{File: file, Text: err.Error()}
		}
		p := &Problem{File: file, Text: y.GetMessage()}
		if t := y.GetToken(); t != nil {
			p.Line = t.Position.Line
		}
		return nil, p
	}
	if len(tree.Docs) > 1 {
		return nil, &Problem{File: file, Text: "holds more than one document"}
	}
	r := &reader{file: file, lines: map[string]int{}, unread: map[string]bool{}}
	if len(tree.Docs) == 0 || tree.Docs[0].Body == nil {
		return nil, &Problem{File: file, Text: "is empty"}
	}
	r.section(tree.Docs[0].Body, reflect.ValueOf(h).Elem(), "")
	if r.unread[""] && len(r.lines) == 0 {
		return nil, r.problems[0]
	}
	return r, nil
}

func (r *reader) problem(n ast.Node, key, format string, args ...any) {
	p := &Problem{File: r.file, Key: key, Text: fmt.Sprintf(format, args...)}
	if t := n.GetToken(); t != nil && t.Position != nil {
		p.Line = t.Position.Line
	}
	r.problems = append(r.problems, p)
	r.unread[key] = true
}

// section reads a mapping into struct v. A section without a value is an empty one.
func (r *reader) section(n ast.Node, v reflect.Value, prefix string) {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.NullNode:
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		r.problem(n, prefix, "wants keys and values, has %s", kind(n))
	}
	for _, pair := range values {
		name, ok := pair.Key.(*ast.StringNode)
		if !ok {
			r.problem(pair.Key, prefix, "has a key that is no plain word")
			continue
		}
		key := join(prefix, name.Value)
		m, ok := member(v, name.Value)
		if !ok {
			r.problem(pair.Key, key, "%s", unknownKey(v, name.Value))
			if near := nearest(v, name.Value); near != "" {
				r.unread[join(prefix, near)] = true
			}
			continue
		}
		if _, twice := r.lines[key]; twice {
			r.problem(pair.Key, key, "is given twice")
			continue
		}
		r.lines[key] = pair.Key.GetToken().Position.Line
		r.value(pair.Value, m, key)
	}
}

func (r *reader) value(n ast.Node, v reflect.Value, key string) {
	_, null := n.(*ast.NullNode)
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		r.section(n, v.Elem(), key)
	case v.Kind() == reflect.Struct:
		r.section(n, v, key)
	case null:
		v.SetZero()
	case v.Kind() == reflect.String:
		s, ok := text(n)
		if !ok {
			r.problem(n, key, "wants text, has %s", quotable(n))
			return
		}
		v.SetString(s)
	case v.Kind() == reflect.Int:
		// The token's own words, so that a number beyond the type is an error too.
		i, err := strconv.Atoi(n.GetToken().Value)
		if _, ok := n.(*ast.IntegerNode); !ok || err != nil {
			r.problem(n, key, "wants a whole number, has %s", kind(n))
			return
		}
		v.SetInt(int64(i))
	case v.Kind() == reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			r.problem(n, key, "wants true or false, has %s", kind(n))
			return
		}
		v.SetBool(b.Value)
	default:
		r.list(n, v, key)
	}
}

func (r *reader) list(n ast.Node, v reflect.Value, key string) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		r.problem(n, key, "wants a list, has %s", kind(n))
		return
	}
	list := []string{}
	for _, item := range seq.Values {
		s, ok := text(item)
		if !ok {
			r.problem(item, key, "wants a list of texts, has %s in it", quotable(item))
			delete(r.unread, key) // the others are judged
			continue
		}
		list = append(list, s)
	}
	v.Set(reflect.ValueOf(list))
}

func text(n ast.Node) (string, bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, true
	case *ast.LiteralNode:
		return s.Value.Value, true
	}
	return "", false
}

// kind names what stands in the file, never the value: it may be a secret that
// somebody put in the wrong place.
func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys and values"
	case *ast.SequenceNode:
		return "a list"
	case *ast.BoolNode:
		return "true or false"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.AliasNode, *ast.AnchorNode, *ast.MergeKeyNode:
		return "an anchor or alias, which host files do not use"
	}
	return "something else"
}

// quotable is kind where quotes would make a text of it.
func quotable(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a key and a value (put quotes round a text with a colon)"
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return kind(n) + " (put quotes round it for text)"
	}
	return kind(n)
}
