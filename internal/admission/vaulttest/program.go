package vaulttest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Reader is the policy of a token that may see names and never values.
const Reader = `
path "secret/metadata/shared" { capabilities = ["list"] }
path "secret/metadata/shared/*" { capabilities = ["list", "read"] }
path "identity/group/*" { capabilities = ["read"] }
path "sys/policies/acl/*" { capabilities = ["read"] }
`

// Program is a stand-in as a process of its own, for tests that need one
// somewhere else. Secrets below secret/shared have one value; the group
// "platform" may read those that granted says. It prints its address and a
// reader's token on out, and besides the API answers
//
//	GET /requests       what was asked so far, "METHOD path" a line
//	PUT /fault/<fault>  from now on: none, sealed, or a 403 on list or policies
func Program(listen string, secrets []string, granted func(name string) bool, value string, out io.Writer) error {
	s := New()
	s.mounts["secret"], s.secrets["secret"] = "2", map[string]*secret{}
	var rules strings.Builder
	for _, name := range secrets {
		s.secrets["secret"]["shared/"+name] = &secret{versions: []version{{values: map[string]any{"value": value}, created: time.Now()}}}
		if granted(name) {
			fmt.Fprintf(&rules, "path \"secret/data/shared/%s\" { capabilities = [\"read\"] }\n", name)
		}
	}
	s.policies["platform"], s.policies["reader"] = rules.String(), Reader
	s.groups["g"] = &group{id: "g", name: "platform", policies: []string{"platform"}}
	const token = "hvs.reader-of-names"
	s.tokens[token] = []string{"default", "reader"}

	l, err := net.Listen("tcp4", listen)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "http://%s %s\n", l.Addr(), token); err != nil {
		return err
	}
	return (&http.Server{Handler: &recorder{next: s}, ReadHeaderTimeout: time.Minute}).Serve(l)
}

// recorder keeps what was asked, and plays faults.
type recorder struct {
	next http.Handler

	mu       sync.Mutex
	requests []string
	fault    string
}

func (p *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	path, ours := strings.CutPrefix(r.URL.Path, "/v1/")
	if !ours {
		defer p.mu.Unlock()
		if fault, ok := strings.CutPrefix(r.URL.Path, "/fault/"); ok {
			p.fault = fault
			return
		}
		for _, line := range p.requests {
			fmt.Fprintln(w, line)
		}
		return
	}
	p.requests = append(p.requests, operationName(r)+" "+path)
	fault := p.fault
	p.mu.Unlock()
	switch {
	case fault == "sealed":
		refuse(w, http.StatusServiceUnavailable, "Vault is sealed")
	case fault == "list" && operation(r) == "list", fault == "policies" && strings.HasPrefix(path, "sys/policies/"):
		refuse(w, http.StatusForbidden, "1 error occurred:\n\t* permission denied\n\n")
	default:
		p.next.ServeHTTP(w, r)
	}
}
