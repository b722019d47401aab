package hosts

import (
	"net"
	"slices"
	"strings"

	"agentworks-deploy/internal/report"
)

// Fault is a reason, in the host file alone, why a host may not go live.
type Fault struct{ Key, Text string }

// LiveFaults are all of them. A deploy refuses for these and for what it finds
// on the host; other verbs still work, so that an auditor can look at such a
// host.
func (h *Host) LiveFaults() []Fault {
	var faults []Fault
	add := func(key, text string) { faults = append(faults, Fault{key, text}) }
	// A server of several people without slots or without a login is the
	// incident these rules come from (case V-01).
	if h.Tier == "team" {
		if h.Slots.Mode == "off" {
			add("slots.mode", "is off on a team host: on or optin")
		}
		if !h.Listen.Auth {
			add("listen.auth", "is false on a team host: the listener must be authenticated")
		}
	}
	if h.Listen.Address == "" || h.Listen.Guarded() {
		return faults
	}
	if host, _, err := net.SplitHostPort(h.Listen.Address); err != nil || !loopback(host) {
		add("listen.address", "is not loopback: that wants listen.auth true and at least one entry in listen.allowed_hosts")
	}
	return faults
}

// Guarded reports whether a listener beyond loopback is allowed: it asks for a
// login and knows its names.
func (l Listen) Guarded() bool {
	return l.Auth && slices.ContainsFunc(l.AllowedHosts, func(h string) bool { return strings.TrimSpace(h) != "" })
}

// loopback errs towards no: an empty host is every address, and a name may
// change what it means.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Admit says what forbids the host to go live, with file, line and key; nil
// where nothing does.
func (l *Loaded) Admit() error {
	c := newChecker(l)
	for _, f := range l.Host.LiveFaults() {
		c.bad(f.Key, "%s", f.Text)
	}
	if len(c.problems) == 0 {
		return nil
	}
	return &report.CodedError{Code: report.ExitUsage, Err: &Problems{c.problems}}
}
