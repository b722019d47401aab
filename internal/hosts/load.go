package hosts

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"agentworks-deploy/internal/report"
)

// EnvPrefix begins every environment variable that is read: the prefix and a
// key in capitals with "_" for ".", such as AGENTWORKS_DEPLOY_SLOTS_COUNT.
const EnvPrefix = "AGENTWORKS_DEPLOY_"

// EnvDir names the hosts folder; EnvLab overrides the name of every lab channel.
const (
	EnvDir = EnvPrefix + "HOSTS_DIR"
	EnvLab = EnvPrefix + "LAB"
)

// maxFile bounds a host file; real ones have about 1 KiB.
const maxFile = 1 << 20

// Setting is one value given explicitly on the command line; Flag is how.
type Setting struct{ Key, Value, Flag string }

// Loaded is a host with where each of its values came from.
type Loaded struct {
	Host Host
	File string
	// source says for each key that is not at its default: "hosts/rts.yaml:4",
	// "AGENTWORKS_DEPLOY_LAB", "--set".
	source map[string]string
	lines  map[string]int
	// What could not be read, and the keys that must not be judged for it.
	problems []*Problem
	unread   map[string]bool
}

// Defaults are the values of a host file that says nothing.
func Defaults() Host {
	return Host{
		Tier:    "single",
		Slots:   Slots{Mode: "off", Prefix: DefaultPrefix, Count: 50, MaxCommands: 32},
		Release: Release{Keep: 2, Manager: "user"},
		Vault:   Vault{From: "host"},
	}
}

// Load makes the effective values of host name: defaults, dir/name.yaml,
// environ (in the form of os.Environ), settings. Every fault is exit 2.
func Load(dir, name string, environ []string, settings []Setting) (*Loaded, error) {
	bare := strings.TrimSuffix(filepath.Base(name), ".yaml") // of somebody who typed the file
	if !hostName.MatchString(name) {
		next := "lower case letters, digits, dots, dashes and underscores"
		if hostName.MatchString(bare) {
			next = "type " + bare
		}
		return nil, report.Coded(report.ExitUsage, "%q is not a host name: %s", name, next)
	}
	file := filepath.Join(dir, name+".yaml")
	data, err := readFile(file)
	if errors.Is(err, os.ErrNotExist) {
		known, _ := Names(dir)
		if bare != name && slices.Contains(known, bare) {
			return nil, report.Coded(report.ExitUsage, "unknown host %q: type %s", name, bare)
		}
		if slices.Contains(Overlooked(dir), name+".yml") {
			return nil, report.Coded(report.ExitUsage, "unknown host %q: rename %s.yml to %s.yaml", name, filepath.Join(dir, name), name)
		}
		return nil, report.Coded(report.ExitUsage, "unknown host %q: there is no %s (hosts here: %s)", name, file, strings.Join(known, ", "))
	}
	if err != nil {
		return nil, report.Coded(report.ExitUsage, "read host file: %w", err)
	}
	l, err := read(file, data)
	if err != nil {
		return nil, &report.CodedError{Code: report.ExitUsage, Err: err}
	}
	l.Host.Name = name
	return l, l.finish(environ, settings)
}

// read makes the values of one file's text over the defaults.
func read(file string, data []byte) (*Loaded, error) {
	l := &Loaded{Host: Defaults(), File: file, source: map[string]string{}}
	r, err := readYAML(&l.Host, file, data)
	if err != nil {
		return nil, err
	}
	l.lines, l.problems, l.unread = r.lines, r.problems, r.unread
	for key, line := range l.lines {
		l.source[key] = fmt.Sprintf("%s:%d", file, line)
	}
	return l, nil
}

// FromSettings makes a host without a file, for a command that runs on the
// server itself: both channels are local.
func FromSettings(name string, environ []string, settings []Setting) (*Loaded, error) {
	l := &Loaded{Host: Defaults(), source: map[string]string{}}
	l.Host.Name = name
	l.Host.Channels = Channels{Admin: Channel{Local: &LocalChannel{}}, Service: Channel{Local: &LocalChannel{}}}
	return l, l.finish(environ, settings)
}

// finish applies the upper layers, derives what was left out, and checks.
func (l *Loaded) finish(environ []string, settings []Setting) error {
	l.environment(environ)
	for _, s := range settings {
		if err := setText(&l.Host, s.Key, s.Value); err != nil {
			l.unusable(s.Key, &Problem{File: s.Flag, Key: s.Key, Text: err.Error()})
			continue
		}
		l.source[s.Key] = s.Flag
	}
	l.derive()
	if problems := append(l.problems, l.check()...); len(problems) > 0 {
		// In the order of the file, then what is missing, then what came from elsewhere.
		slices.SortStableFunc(problems, func(a, b *Problem) int { return cmp.Compare(l.order(a), l.order(b)) })
		return &report.CodedError{Code: report.ExitUsage, Err: &Problems{problems}}
	}
	return nil
}

func (l *Loaded) order(p *Problem) int {
	switch {
	case p.File != l.File:
		return math.MaxInt
	case p.Line == 0: // what is missing
		return math.MaxInt - 1
	}
	return p.Line
}

// unusable notes a value of an upper layer that nothing was set from.
func (l *Loaded) unusable(key string, p *Problem) {
	l.problems = append(l.problems, p)
	if l.unread == nil {
		l.unread = map[string]bool{}
	}
	l.unread[key] = true
}

func (l *Loaded) environment(environ []string) {
	keys := map[string]string{}
	for _, key := range knownKeys() {
		keys[envName(key)] = key
	}
	environ = slices.Sorted(slices.Values(environ))
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		key, known := keys[name]
		switch {
		case !strings.HasPrefix(name, EnvPrefix), name == EnvDir:
		case name == EnvLab:
			for key, c := range map[string]*Channel{"channels.admin": &l.Host.Channels.Admin, "channels.service": &l.Host.Channels.Service} {
				if c.Lab != nil {
					c.Lab.Name = value
					l.source[key+".lab.name"] = name
				}
			}
		case !known:
			text := "environment variable " + name + " names no setting"
			if near := resembled(name, append(slices.Sorted(maps.Keys(keys)), EnvDir, EnvLab)); near != "" {
				text += "; did you mean " + near + "?"
			}
			l.problems = append(l.problems, &Problem{Text: text})
		default:
			if err := setText(&l.Host, key, value); err != nil {
				l.unusable(key, &Problem{File: "environment variable " + name, Text: err.Error()})
				continue
			}
			l.source[key] = name
		}
	}
}

func envName(key string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// derive fills in the values that follow from others, unless they were given.
func (l *Loaded) derive() {
	h := &l.Host
	layout := h.Layout()
	given := func(key string) bool { _, ok := l.source[key]; return ok }
	if !given("paths.app") {
		h.Paths.App = layout.App
	}
	if !given("paths.docs") {
		h.Paths.Docs = layout.Docs
	}
	if !given("paths.home") {
		h.Paths.Home = layout.Home
	}
	if !given("release.services") {
		h.Release.Services = []string{h.Product + "-workspace", h.Product + "-agent"}
	}
}

// Value is one effective value with its source, fit to be shown.
type Value struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Explain lists every effective value in the order of the schema. What may
// hold a secret (a URL's user, password and query, a DSN) is blacked out.
func (l *Loaded) Explain() []Value {
	var values []Value
	leaves(reflect.ValueOf(&l.Host).Elem(), "", func(key string, leaf reflect.Value) {
		source, ok := l.source[key]
		if !ok {
			source = "default"
		}
		values = append(values, Value{Key: key, Value: shown(leaf), Source: source})
	})
	return values
}

func shown(leaf reflect.Value) string {
	switch v := leaf.Interface().(type) {
	case string:
		return redact(v)
	case []string:
		words := make([]string, len(v))
		for i, w := range v {
			words[i] = redact(w)
		}
		return "[" + strings.Join(words, ", ") + "]"
	case int:
		if v == 0 {
			return "" // as an empty text: nobody decided
		}
		return strconv.Itoa(v)
	case *LocalChannel:
		return "{}"
	default:
		return fmt.Sprint(v)
	}
}

func readFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", file)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", file, info.Size(), maxFile)
	}
	return os.ReadFile(file)
}
