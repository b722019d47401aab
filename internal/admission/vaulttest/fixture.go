package vaulttest

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
)

// Fixture is one server, filled for one test: every request goes through a
// recorder in front of it, which can also play faults.
type Fixture struct {
	Name   string
	URL    string      // of the recorder
	Admin  *api.Client // as root, past the recorder
	Mount  string      // a KV v2 mount of this test's own
	suffix string

	mu       sync.Mutex
	requests []string // "GET secret/metadata/x"
	fault    func(w http.ResponseWriter, r *http.Request) bool
}

// Each runs test on a fresh stand-in, and on a real server too where
// AGENTWORKS_TEST_VAULT_ADDR and AGENTWORKS_TEST_VAULT_TOKEN name one or a vault or
// bao binary is on PATH (started in dev mode for this test).
func Each(t *testing.T, test func(t *testing.T, f *Fixture)) {
	t.Run("stand-in", func(t *testing.T) {
		s := New()
		srv := httptest.NewServer(s)
		t.Cleanup(srv.Close)
		test(t, fill(t, "stand-in", srv.URL, s.RootToken()))
	})
	if addr := os.Getenv("AGENTWORKS_TEST_VAULT_ADDR"); addr != "" {
		t.Run("real", func(t *testing.T) {
			test(t, fill(t, "real", addr, os.Getenv("AGENTWORKS_TEST_VAULT_TOKEN")))
		})
		return
	}
	for _, program := range []string{"vault", "bao"} {
		if path, err := exec.LookPath(program); err == nil {
			t.Run(program, func(t *testing.T) {
				addr, token := startDev(t, path)
				test(t, fill(t, program, addr, token))
			})
			return
		}
	}
}

// startDev runs a real server in memory and waits until it is unsealed.
func startDev(t *testing.T, program string) (addr, token string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := l.Addr().String()
	l.Close()
	token = "root-" + rand.Text()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "server", "-dev", "-dev-no-store-token", "-dev-root-token-id="+token, "-dev-listen-address="+listen)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	addr = "http://" + listen
	for deadline := time.Now().Add(30 * time.Second); ; {
		resp, err := http.Get(addr + "/v1/sys/health")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return addr, token
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready after 30 s: %v", program, err)
		}
		time.Sleep(20 * time.Millisecond) // the server offers no event to wait for
	}
}

func fill(t *testing.T, name, addr, token string) *Fixture {
	t.Helper()
	f := &Fixture{Name: name, suffix: strings.ToLower(rand.Text()[:8])}
	target, err := url.Parse(addr)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	recorder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.requests = append(f.requests, strings.TrimPrefix(operationName(r)+" "+strings.TrimPrefix(r.URL.Path, "/v1/"), " "))
		fault := f.fault
		f.mu.Unlock()
		if fault != nil && fault(w, r) {
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(recorder.Close)
	f.URL = recorder.URL

	cfg := api.DefaultConfig()
	cfg.Address = addr
	if f.Admin, err = api.NewClient(cfg); err != nil {
		t.Fatal(err)
	}
	f.Admin.SetToken(token)
	f.Admin.ClearNamespace()
	f.Mount = "secret-" + f.suffix
	f.Write(t, "sys/mounts/"+f.Mount, map[string]any{"type": "kv", "options": map[string]any{"version": "2"}})
	t.Cleanup(func() { _, _ = f.Admin.Logical().Delete("sys/mounts/" + f.Mount) })
	return f
}

func operationName(r *http.Request) string {
	if operation(r) == "list" {
		return "LIST"
	}
	return r.Method
}

// Write writes as root and fails the test where that is refused. A KV v2 mount
// upgrades itself for a moment after it was made; that answer is asked again.
func (f *Fixture) Write(t *testing.T, path string, d map[string]any) *api.Secret {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		s, err := f.Admin.Logical().Write(path, d)
		if err == nil {
			return s
		}
		if !strings.Contains(err.Error(), "Upgrading from non-versioned") || time.Now().After(deadline) {
			t.Fatalf("write %s: %v", path, err)
		}
		time.Sleep(20 * time.Millisecond) // the upgrade offers no event to wait for
	}
}

// Secret stores a value below the mount.
func (f *Fixture) Secret(t *testing.T, name, value string) {
	t.Helper()
	f.Write(t, f.Mount+"/data/"+name, map[string]any{"data": map[string]any{"value": value}})
}

// Policy defines a policy and returns its full name, which no other test uses.
// "MOUNT" in its text stands for the mount.
func (f *Fixture) Policy(t *testing.T, name, text string) string {
	t.Helper()
	full := name + "-" + f.suffix
	f.Write(t, "sys/policies/acl/"+full, map[string]any{"policy": strings.ReplaceAll(text, "MOUNT", f.Mount)})
	t.Cleanup(func() { _, _ = f.Admin.Logical().Delete("sys/policies/acl/" + full) })
	return full
}

// Group makes an identity group with policies and member groups, and returns
// its full name and id.
func (f *Fixture) Group(t *testing.T, name string, policies, members []string) (full, id string) {
	t.Helper()
	full = name + "-" + f.suffix
	s := f.Write(t, "identity/group", map[string]any{"name": full, "policies": policies, "member_group_ids": members})
	id, _ = s.Data["id"].(string)
	t.Cleanup(func() { _, _ = f.Admin.Logical().Delete("identity/group/id/" + id) })
	return full, id
}

// Token makes a token with policies.
func (f *Fixture) Token(t *testing.T, policies ...string) string {
	t.Helper()
	return f.Write(t, "auth/token/create", map[string]any{"policies": policies, "ttl": "1h"}).Auth.ClientToken
}

// AppRole makes a role with policies and returns its two halves.
func (f *Fixture) AppRole(t *testing.T, policies ...string) (mount, roleID, secretID string) {
	t.Helper()
	mount = "approle"
	if f.Name != "stand-in" {
		mount = "approle-" + f.suffix
	}
	f.Write(t, "sys/auth/"+mount, map[string]any{"type": "approle"})
	role := "auth/" + mount + "/role/reader"
	f.Write(t, role, map[string]any{"token_policies": policies})
	s, err := f.Admin.Logical().Read(role + "/role-id")
	if err != nil {
		t.Fatal(err)
	}
	return mount, s.Data["role_id"].(string), f.Write(t, role+"/secret-id", nil).Data["secret_id"].(string)
}

// Requests are those that came through the recorder so far.
func (f *Fixture) Requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.requests...)
}

// Fault plays a fault for each request for which play returns true; it then
// must have answered.
func (f *Fixture) Fault(play func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = play
}

// Refuse answers as Vault does, with an error document.
func Refuse(w http.ResponseWriter, status int, errors ...string) { refuse(w, status, errors...) }
