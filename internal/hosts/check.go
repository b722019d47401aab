package hosts

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// The names below end up in accounts, groups, unit files, sudo rules and mount
// options. What any of those would read in another way is refused here, once,
// instead of being quoted by five grammars (cases B05, B45).
var (
	hostName    = newRule(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	productName = newRule(`^[a-z][a-z0-9-]{0,22}[a-z0-9]$`)
	prefixName  = newRule(`^[a-z][a-z0-9]{0,15}$`)
	plainPath   = newRule(`^/[A-Za-z0-9_./+@-]+$`)
	unitName    = newRule(`^[A-Za-z0-9_][A-Za-z0-9:_.@-]*$`)
	labName     = newRule(`^[a-z0-9][a-z0-9-]{0,31}$`)
	sshWord     = newRule(`^[A-Za-z0-9_\[][A-Za-z0-9_.:@%\[\]-]*$`)
	regionName  = newRule(`^[a-z]{2}(-[a-z]+)+-[0-9]$`)
	awsWord     = newRule(`^[A-Za-z0-9_.:/@+-]+$`)
	instanceID  = newRule(`^m?i-[0-9a-f]{8,17}$`)
	shareWord   = newRule(`^([1-9][0-9]{0,6}|[1-9][0-9]?%|100%|0)$`)
	bucketName  = newRule(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	envKey      = newRule(`^[A-Za-z_][A-Za-z0-9_]*$`)
	groupName   = newRule(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`) // one segment of an API path
	kvWord      = newRule(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$`)
)

// systemRoots never hold an app, docs or home folder directly or below.
var systemRoots = []string{"/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var/tmp", "/var/run"}

// checker collects the problems of one host.
type checker struct {
	*Loaded
	problems []*Problem
}

// bad notes a problem where key was set; a key that nobody set stands with the
// section that lacks it.
func (c *checker) bad(key, format string, args ...any) {
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
}

func parent(key string) string {
	if i := strings.LastIndexByte(key, '.'); i > 0 {
		return key[:i]
	}
	return ""
}

func (c *checker) matches(key, value string, rule *rule) {
	if !rule.MatchString(value) {
		c.bad(key, "%q does not match %s", value, rule)
	}
}

func (c *checker) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		c.bad(key, "%q is none of %s", value, strings.Join(allowed, ", "))
	}
}

func (c *checker) between(key string, n, low, high int) {
	if n < low || n > high {
		c.bad(key, "%d is not between %d and %d", n, low, high)
	}
}

// check returns every problem, in the order of the schema.
func (l *Loaded) check() []*Problem {
	c := &checker{Loaded: l}
	h := &l.Host
	c.product()
	c.oneOf("tier", h.Tier, "single", "team")
	c.paths()
	c.slots()
	c.channel("channels.admin", h.Channels.Admin)
	if _, given := c.source["channels.service"]; given || h.Channels.Service != (Channel{}) {
		c.channel("channels.service", h.Channels.Service)
	}
	c.release()
	c.listen()
	for _, key := range h.Env.Required {
		c.matches("env.required", key, envKey)
	}
	for _, tool := range h.Retired {
		c.matches("retired", tool, unitName)
	}
	for _, program := range h.HostPrograms {
		c.path("host_programs", program)
	}
	c.vault()
	c.plain()
	return c.problems
}

// plain refuses texts that no line of output or configuration could carry, in
// the keys that nothing else was found wrong with.
func (c *checker) plain() {
	known := map[string]bool{}
	for _, p := range c.problems {
		known[p.Key] = true
	}
	odd := func(s string) bool { return strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) }
	leaves(reflect.ValueOf(&c.Host).Elem(), "", func(key string, leaf reflect.Value) {
		if known[key] {
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
	switch {
	case product == "":
		c.bad("product", "is missing: the service account and the prefix of its units")
	case !productName.MatchString(product):
		c.bad("product", "%q does not match %s", product, productName)
	case slices.Contains([]string{"root", "slotctl", "agentworks-deploy"}, product):
		c.bad("product", "%q is taken: it would stand in the way of a path or account of the system", product)
	case prefix != "" && strings.HasPrefix(product, prefix) && slotRest(product[len(prefix):]):
		c.bad("product", "%q would be one of its own slots or their group", product)
	}
}

func slotRest(s string) bool {
	return s == "shared" || s != "" && strings.Trim(s, "0123456789") == ""
}

func (c *checker) paths() {
	p := c.Host.Paths
	if !c.path("paths.app", p.App) {
		return // the others follow from it unless they are given
	}
	ok := c.path("paths.docs", p.Docs)
	ok = c.path("paths.home", p.Home) && ok
	if !ok {
		return
	}
	if within(p.Docs, p.App) {
		c.bad("paths.docs", "%s holds the app folder %s: every document grant would open it", p.Docs, p.App)
	}
	for _, private := range []string{"releases", "slots", "state", "logs", ".deploy", "current"} {
		if root := path.Join(p.App, private); within(root, p.Docs) {
			c.bad("paths.docs", "%s lies in %s, which is not for documents", p.Docs, root)
		}
	}
	if within(p.Docs, p.Home) {
		c.bad("paths.home", "%s lies in the docs folder %s", p.Home, p.Docs)
	}
}

// path refuses what is not an absolute, clean, plainly written path below a
// folder of its own; it says so and returns false.
func (c *checker) path(key, p string) bool {
	switch {
	case p == "":
		c.bad(key, "is empty")
	case !plainPath.MatchString(p):
		c.bad(key, "%q is not an absolute path of letters, digits and _./+@-: unit files, sudo rules and mounts would read it in another way", p)
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

func (c *checker) slots() {
	s := c.Host.Slots
	c.oneOf("slots.mode", s.Mode, "off", "optin", "on")
	c.matches("slots.prefix", s.Prefix, prefixName)
	c.between("slots.count", s.Count, 1, 998)
	if s.IDs != 0 && (s.IDs < 1000 || s.IDs > 2_000_000_000 || holdsNobody(s.IDs)) {
		c.bad("slots.ids", "%d does not begin a block of 1,000 free ids between 1000 and 2000000000 without 65534 and 65535", s.IDs)
	}
	if s.Sudo != "" {
		c.oneOf("slots.sudo", s.Sudo, "direct")
	}
	c.between("slots.max_commands", s.MaxCommands, 1, 10_000)
}

// holdsNobody says whether the block of 1,000 ids holds 65534 or 65535.
func holdsNobody(first int) bool { return first <= 65535 && first+999 >= 65534 }

func (c *checker) channel(key string, ch Channel) {
	var set []string
	if ch.Local != nil {
		set = append(set, "local")
	}
	if ch.Lab != nil {
		set = append(set, "lab")
		c.matches(key+".lab.name", ch.Lab.Name, labName)
	}
	if ssh := ch.SSH; ssh != nil {
		set = append(set, "ssh")
		c.matches(key+".ssh.host", ssh.Host, sshWord)
		if ssh.User != "" {
			c.matches(key+".ssh.user", ssh.User, sshWord)
		}
		c.between(key+".ssh.port", ssh.Port, 0, 65535)
	}
	if ch.SSM != nil {
		set = append(set, "ssm")
		c.ssm(key+".ssm", ch.SSM)
	}
	switch {
	case len(set) == 0 && key == "channels.service":
		c.bad(key, "is empty: exactly one of local, lab, ssh, ssm, or no such key, and the admin channel serves for both")
	case len(set) == 0:
		c.bad(key, "is missing: exactly one of local, lab, ssh, ssm")
	case len(set) > 1:
		c.bad(key, "has %s: exactly one of local, lab, ssh, ssm", strings.Join(set, " and "))
	}
}

func (c *checker) ssm(key string, s *SSMChannel) {
	if s.Region == "" {
		c.bad(key+".region", "is missing: the AWS region of the instance, like us-west-2")
	} else {
		c.matches(key+".region", s.Region, regionName)
	}
	if s.Profile != "" {
		c.matches(key+".profile", s.Profile, awsWord)
	}
	if s.Bucket != "" {
		c.matches(key+".bucket", s.Bucket, bucketName)
	}
	t := s.Targets
	for _, id := range t.IDs {
		c.matches(key+".targets.ids", id, instanceID)
	}
	if k, _, ok := strings.Cut(t.Tag, "="); t.Tag != "" && (!ok || k == "") {
		c.bad(key+".targets.tag", "%q is not key=value", t.Tag)
	}
	if t.Tag != "" && len(t.IDs) > 0 {
		c.bad(key+".targets", "has a tag and ids: one of them")
	}
	for name, share := range map[string]string{"max_concurrency": t.MaxConcurrency, "max_errors": t.MaxErrors} {
		if share != "" {
			c.matches(key+".targets."+name, share, shareWord)
		}
	}
	i, ways := s.Instance, 0
	if s.Many() {
		ways++
	}
	if i.ID != "" {
		ways++
		c.matches(key+".instance.id", i.ID, instanceID)
	}
	if i.Tag != "" {
		ways++
		if k, _, ok := strings.Cut(i.Tag, "="); !ok || k == "" {
			c.bad(key+".instance.tag", "%q is not key=value", i.Tag)
		}
	}
	if i.Stack != "" || i.Output != "" {
		ways++
		c.matches(key+".instance.stack", i.Stack, awsWord)
		c.matches(key+".instance.output", i.Output, awsWord)
	}
	if ways != 1 {
		c.bad(key+".instance", "wants exactly one of id, tag, stack with output, or the channel's targets")
	}
}

func (c *checker) release() {
	r := c.Host.Release
	c.between("release.keep", r.Keep, 1, 1000)
	c.oneOf("release.manager", r.Manager, "user", "system")
	for _, unit := range r.Services {
		c.matches("release.services", unit, unitName)
	}
	for _, u := range r.Health {
		c.url("release.health", u)
	}
}

func (c *checker) listen() {
	l := c.Host.Listen
	if l.Address != "" {
		if _, _, err := net.SplitHostPort(l.Address); err != nil {
			c.bad("listen.address", "%q is not host:port", l.Address)
		}
	}
}

func (c *checker) vault() {
	v := c.Host.Vault
	c.oneOf("vault.from", v.From, "host", "operator")
	if v.Address != "" {
		c.url("vault.address", v.Address)
		c.matches("vault.mount", v.Mount, kvWord)
	}
	if v.Prefix != "" {
		c.matches("vault.prefix", v.Prefix, kvWord)
	}
	if v.PlatformGroup != "" {
		c.matches("vault.platform_group", v.PlatformGroup, groupName)
	}
	files := map[string]string{"vault.ca": v.CA, "vault.token_file": v.TokenFile}
	if v.AppRole != nil {
		files["vault.approle.role_id_file"], files["vault.approle.secret_id_file"] = v.AppRole.RoleIDFile, v.AppRole.SecretIDFile
		if v.AppRole.RoleIDFile == "" || v.AppRole.SecretIDFile == "" {
			c.bad("vault.approle", "wants role_id_file and secret_id_file")
		}
		if v.TokenFile != "" {
			c.bad("vault.approle", "and vault.token_file: one of them")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(files)) {
		if files[key] != "" && !plainPath.MatchString(files[key]) {
			c.bad(key, "is not an absolute path of letters, digits and _./+@-")
		}
	}
}

// url shows no value: it may hold a password.
func (c *checker) url(key, s string) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		c.bad(key, "is not an http or https address")
		return
	}
	if u.User != nil {
		c.bad(key, "holds a user or password: host files hold no secret")
	}
}
