package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Assignment is one NAME=value of an EnvironmentFile, with the line (from 1)
// its name stands on. A later assignment of the same name wins.
type Assignment struct {
	Name, Value string
	Line        int
}

// envState names where in a file the reader of ParseEnvironmentFile stands.
type envState int

const (
	preName envState = iota
	inName
	preValue
	inValue
	valueEscape
	singleQuoted
	doubleQuoted
	doubleEscape
	inComment
	commentEscape
)

// ParseEnvironmentFile reads the syntax of systemd.exec(5), EnvironmentFile=,
// as systemd itself does it: a line without "=" says nothing, CR ends a line as
// LF does (case B82), a quote may span lines, text after a closing quote is
// joined on, and an open quote ends with the file. As since systemd 254, a
// backslash at the end of a comment does not continue it. Names that no
// environment can hold are left out. An error means that systemd would refuse
// the whole file; it never holds a value.
func ParseEnvironmentFile(data []byte) ([]Assignment, error) {
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, errors.New("environment file holds a NUL byte")
	}
	p := envParser{line: 1}
	for _, c := range data {
		p.step(c)
		if c == '\n' {
			p.line++
		}
	}
	switch p.state {
	case preValue, inValue, valueEscape, singleQuoted, doubleQuoted, doubleEscape:
		p.push()
	}
	return p.found, p.err
}

// envParser is the state between two bytes. keep is the length of value that
// trailing white space may not be cut below: it moves with every byte that is
// not plain white space.
type envParser struct {
	state       envState
	name, value []byte
	keep        int
	line, at    int
	found       []Assignment
	err         error
}

func (p *envParser) step(c byte) {
	newline := c == '\n' || c == '\r'
	space := newline || c == ' ' || c == '\t'
	switch p.state {
	case preName:
		switch {
		case c == '#' || c == ';':
			p.state = inComment
		case !space:
			p.state, p.at = inName, p.line
			p.name, p.value, p.keep = append(p.name[:0], c), p.value[:0], 0
		}
	case inName:
		switch {
		case newline:
			p.state = preName
		case c == '=':
			p.state = preValue
		default:
			p.name = append(p.name, c)
		}
	case preValue:
		switch {
		case newline:
			p.push()
		case c == '\'':
			p.state = singleQuoted
		case c == '"':
			p.state = doubleQuoted
		case c == '\\':
			p.state = valueEscape
		case !space:
			p.state = inValue
			p.add(c)
		}
	case inValue:
		switch {
		case newline:
			p.push()
		case c == '\\':
			p.state, p.keep = valueEscape, len(p.value)
		case space:
			p.value = append(p.value, c)
		default:
			p.add(c)
		}
	case valueEscape:
		p.state = inValue
		if !newline {
			p.add(c)
		}
	case singleQuoted:
		if c == '\'' {
			p.state = preValue
		} else {
			p.add(c)
		}
	case doubleQuoted:
		switch c {
		case '"':
			p.state = preValue
		case '\\':
			p.state = doubleEscape
		default:
			p.add(c)
		}
	case doubleEscape:
		p.state = doubleQuoted
		switch {
		case strings.IndexByte("\"\\`$", c) >= 0:
			p.add(c)
		case c != '\n':
			p.add('\\')
			p.add(c)
		}
	case inComment:
		switch {
		case newline:
			p.state = preName
		case c == '\\':
			p.state = commentEscape
		}
	case commentEscape:
		p.state = inComment
		if newline {
			p.state = preName
		}
	}
}

// add appends a byte that trailing white space must not take along.
func (p *envParser) add(c byte) {
	p.value = append(p.value, c)
	p.keep = len(p.value)
}

// push ends the assignment being read.
func (p *envParser) push() {
	p.state = preName
	name := strings.TrimRight(string(p.name), " \t")
	value := string(p.value[:p.keep])
	if !utf8.ValidString(name) || !utf8.ValidString(value) {
		if p.err == nil {
			p.err = fmt.Errorf("environment file line %d is not UTF-8", p.at)
		}
		return
	}
	if validEnvName(name) {
		p.found = append(p.found, Assignment{Name: name, Value: value, Line: p.at})
	}
}

// validEnvName tells whether systemd takes name into an environment.
func validEnvName(name string) bool {
	for i, c := range []byte(name) {
		switch {
		case c == '_', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return name != ""
}
