package hosts

import (
	"fmt"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// systemRoots never hold an app, docs or home folder directly or below.
var systemRoots = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var/tmp", "/var/run"}

// checker collects the problems of one host.
type checker struct {
	*Loaded
	problems []*Problem
	wrong    map[string]bool // keys with a problem
}

func newChecker(l *Loaded) *checker { return &checker{Loaded: l, wrong: map[string]bool{}} }

// bad notes a problem where key was set; a key that nobody set stands with the
// section that lacks it. What follows from a key that could not be read, or that
// is wrong itself, is not told.
func (c *checker) bad(key, format string, args ...any) {
	for at := key; at != ""; at = parent(at) {
		if c.unread[at] {
			return
		}
	}
	p := &Problem{File: c.File, Key: key, Text: fmt.Sprintf(format, args...)}
	for at := key; at != ""; at = parent(at) {
		source, ok := c.source[at]
		if !ok {
			continue
		}
		if c.lines[at] > 0 && strings.HasPrefix(source, c.File) {
			p.Line = c.lines[at]
		} else {
			p.File = source
		}
		break
	}
	c.problems = append(c.problems, p)
	c.wrong[key] = true
}

// missing is bad for a key that nobody set, unless an unreadable one below it
// may have meant it.
func (c *checker) missing(key, format string, args ...any) {
	for unread := range c.unread {
		if strings.HasPrefix(unread, key+".") {
			return
		}
	}
	c.bad(key, "is missing"+format, args...)
}

// sound says whether key holds something that others may be held against.
func (c *checker) sound(key string) bool { return !c.wrong[key] && !c.unread[key] }

func (c *checker) given(key string) bool { _, ok := c.source[key]; return ok }

func parent(key string) string {
	if i := strings.LastIndexByte(key, '.'); i > 0 {
		return key[:i]
	}
	return ""
}

// check returns every problem of what could be read.
func (l *Loaded) check() []*Problem {
	c := newChecker(l)
	h := &l.Host
	c.fields(reflect.ValueOf(h).Elem(), "")
	c.product()
	c.paths()
	if ids := h.Slots.IDs; ids != 0 && c.sound("slots.ids") && (ids < 1000 || holdsNobody(ids)) {
		c.bad("slots.ids", "%d does not begin a block of 1,000 free ids between 1000 and 2000000000 without 65534 and 65535", ids)
	}
	c.channel("channels.admin", h.Channels.Admin)
	if _, given := c.source["channels.service"]; given || h.Channels.Service != (Channel{}) {
		c.channel("channels.service", h.Channels.Service)
	}
	for _, program := range h.HostPrograms {
		if c.sound("host_programs") {
			c.place("host_programs", program)
		}
	}
	c.addresses()
	if h.Vault.AppRole != nil && h.Vault.TokenFile != "" {
		c.bad("vault.approle", "and vault.token_file: one of them")
	}
	c.plain()
	return c.problems
}

// fields holds each value below struct v against the bounds of its field. What
// nobody gave is a default, and right, or missing.
func (c *checker) fields(v reflect.Value, prefix string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := f.Tag.Get("yaml")
		if name == "-" {
			continue
		}
		m, key, b := v.Field(i), join(prefix, name), boundsOf(f.Tag)
		if m.Kind() == reflect.Pointer {
			m = m.Elem()
		}
		switch {
		case !m.IsValid(): // a section that is not there
		case m.Kind() == reflect.Struct:
			c.fields(m, key)
		case c.given(key):
			c.field(key, m, b)
		case b.must && b.what != "":
			c.missing(key, ": %s", b.what)
		case b.must:
			c.missing(key, "")
		}
		if b.needs == "" || m.String() == "" {
			continue
		}
		if other, _ := member(v, b.needs); other.String() == "" {
			c.missing(join(prefix, b.needs), ": %s goes with one", name)
		}
	}
}

func (c *checker) field(key string, m reflect.Value, b bounds) {
	switch v := m.Interface().(type) {
	case int:
		if b.ranged && (v < b.low || v > b.high) {
			c.bad(key, "%d is not between %d and %d", v, b.low, b.high)
		}
	case string:
		switch {
		case b.words != nil && !slices.Contains(b.words, v):
			c.bad(key, "%q is none of %s", v, strings.TrimPrefix(strings.Join(b.words, ", "), ", "))
		case b.rule == nil || v == "" && b.empty:
		case v == "":
			c.bad(key, "is empty")
		case !b.rule.MatchString(v):
			c.bad(key, "%s", b.rule.wrong(v))
		case slices.Contains(b.never, v):
			c.bad(key, "%q is taken: it would stand in the way of a path or account of the system", v)
		}
	case []string:
		for _, item := range v {
			if b.rule != nil && !b.rule.MatchString(item) {
				c.bad(key, "%s", b.rule.wrong(item))
			}
		}
	}
}

// plain refuses texts that no line of output or configuration could carry, in
// the keys that nothing else was found wrong with.
func (c *checker) plain() {
	odd := func(s string) bool { return strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) }
	leaves(reflect.ValueOf(&c.Host).Elem(), "", func(key string, leaf reflect.Value) {
		if !c.sound(key) {
			return
		}
		switch v := leaf.Interface().(type) {
		case string:
			if odd(v) {
				c.bad(key, "holds a control byte")
			}
		case []string:
			if slices.ContainsFunc(v, odd) {
				c.bad(key, "holds a control byte")
			}
		}
	})
}

func (c *checker) product() {
	product, prefix := c.Host.Product, c.Host.Slots.Prefix
	if prefix != "" && c.sound("product") && strings.HasPrefix(product, prefix) && slotRest(product[len(prefix):]) {
		c.bad("product", "%q would be one of its own slots or their group", product)
	}
}

func slotRest(s string) bool {
	return s == "shared" || s != "" && strings.Trim(s, "0123456789") == ""
}

func (c *checker) paths() {
	p := c.Host.Paths
	// A folder that is not given follows from another one.
	app := c.folder("paths.app", p.App, c.sound("product"))
	docs := c.folder("paths.docs", p.Docs, app)
	home := c.folder("paths.home", p.Home, app)
	if app && docs && within(p.Docs, p.App) {
		c.bad("paths.docs", "%s holds the app folder %s: every document grant would open it", p.Docs, p.App)
	}
	for _, private := range []string{"releases", "slots", "state", "logs", ".deploy", "current"} {
		if root := path.Join(p.App, private); app && docs && within(root, p.Docs) {
			c.bad("paths.docs", "%s lies in %s, which is not for documents", p.Docs, root)
		}
	}
	if docs && home && within(p.Docs, p.Home) {
		c.bad("paths.home", "%s lies in the docs folder %s", p.Home, p.Docs)
	}
}

// folder says whether p is a folder that others may be held against; derived
// says whether it is where nobody gave it.
func (c *checker) folder(key, p string, derived bool) bool {
	if !c.given(key) {
		return derived
	}
	return c.sound(key) && c.place(key, p)
}

// place refuses what is not a clean path below a folder of its own; it says so
// and returns false.
func (c *checker) place(key, p string) bool {
	switch {
	case path.Clean(p) != p:
		c.bad(key, "%q is not clean: write %s", p, path.Clean(p))
	case strings.Count(p, "/") < 2:
		c.bad(key, "%q is a folder of the system: name one below it", p)
	case slices.ContainsFunc(systemRoots, func(root string) bool { return within(root, p) }):
		c.bad(key, "%q belongs to the system", p)
	case p == "/var/lib" || p == "/var/cache" || p == "/var/log" || p == "/var/spool":
		c.bad(key, "%q is a folder of the system: name one below it", p)
	default:
		return true
	}
	return false
}

// within says whether p is root or lies below it.
func within(root, p string) bool { return p == root || strings.HasPrefix(p, root+"/") }

// holdsNobody says whether the block of 1,000 ids holds 65534 or 65535.
func holdsNobody(first int) bool { return first <= 65535 && first+999 >= 65534 }

func (c *checker) channel(key string, ch Channel) {
	var set []string
	if ch.Local != nil {
		set = append(set, "local")
	}
	if ch.Lab != nil {
		set = append(set, "lab")
	}
	if ch.SSH != nil {
		set = append(set, "ssh")
	}
	if ch.SSM != nil {
		set = append(set, "ssm")
		c.ssm(key+".ssm", ch.SSM)
	}
	switch {
	case len(set) == 0 && key == "channels.service":
		c.bad(key, "is empty: exactly one of local, lab, ssh, ssm, or no such key, and the admin channel serves for both")
	case len(set) == 0:
		c.missing(key, ": exactly one of local, lab, ssh, ssm")
	case len(set) > 1:
		c.bad(key, "has %s: exactly one of local, lab, ssh, ssm", strings.Join(set, " and "))
	}
}

func (c *checker) ssm(key string, s *SSMChannel) {
	if s.Targets.Tag != "" && len(s.Targets.IDs) > 0 {
		c.bad(key+".targets", "has a tag and ids: one of them")
	}
	i, ways := s.Instance, 0
	for _, way := range []bool{s.Many(), i.ID != "", i.Tag != "", i.Stack != "" || i.Output != ""} {
		if way {
			ways++
		}
	}
	const one = "exactly one of id, tag, stack with output, or the channel's targets"
	switch {
	case ways == 0:
		c.missing(key+".instance", ": %s", one)
	case ways > 1:
		c.bad(key+".instance", "wants %s", one)
	}
}

// addresses refuses what a pattern cannot tell, and shows no value: it may hold
// a password.
func (c *checker) addresses() {
	judge := func(key string, list ...string) {
		for _, s := range list {
			if s == "" || !c.sound(key) {
				continue
			}
			if u, err := url.Parse(s); err != nil {
				c.bad(key, "%s", rules["url"].says)
			} else if u.User != nil {
				c.bad(key, "holds a user or password: host files hold no secret")
			}
		}
	}
	judge("release.health", c.Host.Release.Health...)
	judge("vault.address", c.Host.Vault.Address)
}
