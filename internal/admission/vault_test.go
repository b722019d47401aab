package admission

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentworks-deploy/internal/admission/vaulttest"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

// reader is the policy that the tool asks for: names, never values.
const reader = `
path "MOUNT/metadata/shared" { capabilities = ["list"] }
path "MOUNT/metadata/shared/*" { capabilities = ["list", "read"] }
path "identity/group/*" { capabilities = ["read"] }
path "sys/policies/acl/*" { capabilities = ["read"] }
`

func ask(t *testing.T, f *vaulttest.Fixture, group, token string, names ...string) (*Answer, []report.Row) {
	t.Helper()
	facts := &Facts{Manifests: 1}
	for _, n := range names {
		facts.Selections = append(facts.Selections, Selection{Manifest: "Workflow/w/workflow.json", Field: fieldGlobal, Name: n})
	}
	c := hosts.Vault{Address: f.URL, Mount: f.Mount, Prefix: "shared", PlatformGroup: group}
	lookup := func(k string) string { return map[string]string{"VAULT_TOKEN": token}[k] }
	a := AskVault(context.Background(), c, lookup, facts)
	return a, Judge(facts, a, c)
}

// The third show line of admission: three names, one missing, one without a
// grant, one fine.
func TestB77VaultThreeNames(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, f *vaulttest.Fixture) {
		f.Secret(t, "shared/FINE", canary)
		f.Secret(t, "shared/UNGRANTED", canary)
		group, _ := f.Group(t, "platform", []string{f.Policy(t, "platform", `path "MOUNT/data/shared/FINE" { capabilities = ["read"] }`)}, nil)
		_, rows := ask(t, f, group, f.Token(t, f.Policy(t, "reader", reader)), "FINE", "GONE", "UNGRANTED")
		got := lines(rows, report.Warn)
		want := []string{
			"WARN secret-missing Workflow/w/workflow.json: capabilities.selected_global_secret_names names GONE, which exists nowhere",
			"WARN secret-no-platform-grant UNGRANTED: selected by 1 manifest(s), first Workflow/w/workflow.json: capabilities.selected_global_secret_names",
		}
		if !slices.Equal(got, want) {
			t.Errorf("rows:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, r := range rows {
			if r.State == report.Warn && r.Fix == nil {
				t.Errorf("%s has no way out", r.Detail)
			}
		}
		if info := strings.Join(lines(rows, report.Info), "\n"); !strings.Contains(info, "checked 3 of 3 selected name(s)") {
			t.Errorf("what was checked is not said: %s", info)
		}
		namesOnly(t, f, rows)
	})
}

// namesOnly: no request to a data path (case B79), no value in the rows.
func namesOnly(t *testing.T, f *vaulttest.Fixture, rows []report.Row) {
	t.Helper()
	for _, r := range f.Requests() {
		if strings.Contains(r, f.Mount+"/data") || strings.HasPrefix(r, "GET "+f.Mount+"/shared") {
			t.Errorf("a value was asked for: %s", r)
		}
	}
	if s := fmt.Sprint(rows); strings.Contains(s, canary) {
		t.Errorf("a value is in the rows: %s", s)
	}
}

func TestVaultExistence(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, f *vaulttest.Fixture) {
		f.Secret(t, "shared/THERE", canary)
		f.Secret(t, "shared/folder/INSIDE", canary)
		f.Secret(t, "shared/DELETED", canary)
		f.Secret(t, "shared/DESTROYED", canary)
		f.Secret(t, "shared/AGAIN", canary)
		f.Secret(t, "elsewhere/OUTSIDE", canary)
		for _, n := range []string{"DELETED", "AGAIN"} {
			if _, err := f.Admin.Logical().Delete(f.Mount + "/data/shared/" + n); err != nil {
				t.Fatal(err)
			}
		}
		f.Secret(t, "shared/AGAIN", canary)
		f.Write(t, f.Mount+"/destroy/shared/DESTROYED", map[string]any{"versions": []int{1}})
		group, _ := f.Group(t, "platform", []string{f.Policy(t, "platform", `path "MOUNT/data/*" { capabilities = ["read"] }`)}, nil)
		a, rows := ask(t, f, group, f.Token(t, f.Policy(t, "reader", reader)), "THERE", "folder/INSIDE", "INSIDE", "folder", "DELETED", "DESTROYED", "AGAIN", "OUTSIDE", "absent/NAME")
		for name, want := range map[string]bool{"THERE": true, "folder/INSIDE": true, "AGAIN": true, "INSIDE": false, "folder": false, "DELETED": false, "DESTROYED": false, "OUTSIDE": false, "absent/NAME": false} {
			if got, known := a.Exists[name]; !known || got != want {
				t.Errorf("%s exists = %v (known: %v), want %v", name, got, known, want)
			}
		}
		namesOnly(t, f, rows)
	})
}

func TestVaultGrantsOfParents(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, f *vaulttest.Fixture) {
		for _, n := range []string{"OWN", "PARENT", "DENIED", "NONE"} {
			f.Secret(t, "shared/"+n, canary)
		}
		group, id := f.Group(t, "platform", []string{f.Policy(t, "own", `path "MOUNT/data/shared/OWN" { capabilities = ["read"] } path "MOUNT/data/shared/DENIED" { capabilities = ["read"] }`)}, nil)
		_, parent := f.Group(t, "parent", []string{f.Policy(t, "parent", `path "MOUNT/data/+/PARENT" { capabilities = ["read"] }`)}, []string{id})
		f.Group(t, "grandparent", []string{f.Policy(t, "grand", `path "MOUNT/data/shared/DENIED" { capabilities = ["deny"] }`), "undefined-" + f.Mount}, []string{parent})
		a, rows := ask(t, f, group, f.Token(t, f.Policy(t, "reader", reader)), "OWN", "PARENT", "DENIED", "NONE")
		for name, want := range map[string]bool{"OWN": true, "PARENT": true, "DENIED": false, "NONE": false} {
			if a.Granted[name] != want {
				t.Errorf("%s granted = %v, want %v", name, a.Granted[name], want)
			}
		}
		if got := strings.Join(lines(rows, report.Warn), "\n"); !strings.Contains(got, "names policy undefined-"+f.Mount+", which nobody defined") {
			t.Errorf("an undefined policy is not told:\n%s", got)
		}
	})
}

// What Vault refuses is told by API path and capability (case B75), and gives no
// verdict on what it hides.
func TestB75VaultRefusals(t *testing.T) {
	without := func(line string) string {
		var kept []string
		for l := range strings.SplitSeq(reader, "\n") {
			if !strings.Contains(l, line) {
				kept = append(kept, l)
			}
		}
		return strings.Join(kept, "\n")
	}
	for _, tt := range []struct {
		name, policy, want string
		existence, grants  bool
	}{
		{"all rights", reader, "", true, true},
		{"no list", without(`"list"`) + `path "MOUNT/metadata/shared/NAME" { capabilities = ["read"] }`, `WARN secret-vault names below MOUNT/metadata/shared not checked: permission denied: the token's policies lack "list" on MOUNT/metadata/shared`, false, true},
		{"no metadata read", strings.Replace(reader, `["list", "read"]`, `["list"]`, 1), `INFO secret-vault 1 name(s) exist, deletion not checked: permission denied: the token's policies lack "read" on MOUNT/metadata/shared/+`, true, true},
		{"no group", without("identity"), `WARN secret-vault grants not checked: permission denied: the token's policies lack "read" on identity/group/name/`, true, false},
		{"no policies", without("policies"), `INFO secret-vault grants not checked: policy`, true, false},
		{"may read values", reader + `path "MOUNT/data/*" { capabilities = ["read"] }`, `WARN secret-vault the token may read the values of 1 of the selected names`, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vaulttest.Each(t, func(t *testing.T, f *vaulttest.Fixture) {
				f.Secret(t, "shared/NAME", canary)
				group, _ := f.Group(t, "platform", []string{f.Policy(t, "platform", `path "MOUNT/data/shared/*" { capabilities = ["read"] }`)}, nil)
				a, rows := ask(t, f, group, f.Token(t, f.Policy(t, "reader", tt.policy)), "NAME")
				got := strings.Join(lines(rows, report.Warn, report.Info), "\n")
				if want := strings.ReplaceAll(tt.want, "MOUNT", f.Mount); !strings.Contains(got, want) {
					t.Errorf("rows:\n%s\nwant %q", got, want)
				}
				_, existence := a.Exists["NAME"]
				_, grants := a.Granted["NAME"]
				if existence != tt.existence || grants != tt.grants {
					t.Errorf("existence known %v, grants known %v; want %v, %v:\n%s", existence, grants, tt.existence, tt.grants, got)
				}
				if strings.Contains(got, "secret-missing") || strings.Contains(got, "secret-no-platform-grant") {
					t.Errorf("a verdict without knowledge:\n%s", got)
				}
				namesOnly(t, f, rows)
			})
		})
	}
}

// A folder that is closed to the token says nothing of the others.
func TestB78OneClosedFolder(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, f *vaulttest.Fixture) {
		f.Secret(t, "shared/OPEN", canary)
		f.Secret(t, "shared/closed/IN", canary)
		_, rows := ask(t, f, "", f.Token(t, f.Policy(t, "reader", reader+`path "MOUNT/metadata/shared/closed/*" { capabilities = ["deny"] } path "MOUNT/metadata/shared/closed" { capabilities = ["deny"] }`)), "OPEN", "GONE", "closed/IN")
		got := strings.Join(lines(rows, report.Warn, report.Info), "\n")
		for _, want := range []string{"names GONE, which exists nowhere", "names below " + f.Mount + "/metadata/shared/closed not checked", "checked 2 of 3 selected name(s)"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		if strings.Contains(got, "closed/IN, which") {
			t.Errorf("a verdict without knowledge:\n%s", got)
		}
	})
}

func TestVaultPolicyWithoutVerdict(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, f *vaulttest.Fixture) {
		f.Secret(t, "shared/NAME", canary)
		group, _ := f.Group(t, "platform", []string{f.Policy(t, "templated", `path "MOUNT/data/shared/{{identity.entity.name}}" { capabilities = ["read"] }`)}, nil)
		_, rows := ask(t, f, group, f.Token(t, f.Policy(t, "reader", reader)), "NAME")
		if got := strings.Join(lines(rows, report.Info, report.Warn), "\n"); !strings.Contains(got, "it is templated") || strings.Contains(got, "no-platform-grant") {
			t.Errorf("rows:\n%s", got)
		}
	})
}

func TestVaultLogins(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, f *vaulttest.Fixture) {
		f.Secret(t, "shared/NAME", canary)
		policy := f.Policy(t, "reader", reader)
		mount, role, secret := f.AppRole(t, policy)
		dir := t.TempDir()
		file := func(name, content string) string {
			full := filepath.Join(dir, name)
			if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			return full
		}
		facts := &Facts{Selections: []Selection{{Name: "NAME"}}}
		base := hosts.Vault{Address: f.URL, Mount: f.Mount, Prefix: "shared"}
		for _, tt := range []struct {
			name   string
			change func(*hosts.Vault)
			env    map[string]string
			known  bool
			want   string
		}{
			{"token file", func(c *hosts.Vault) { c.TokenFile = file("token", f.Token(t, policy)+"\n") }, nil, true, ""},
			{"AppRole", func(c *hosts.Vault) {
				c.AppRole = &hosts.AppRole{Mount: mount, RoleIDFile: file("role", role), SecretIDFile: file("secret", secret)}
			}, nil, true, ""},
			{"environment", func(c *hosts.Vault) { c.Address = "" }, map[string]string{"VAULT_ADDR": f.URL, "VAULT_TOKEN": f.Token(t, policy)}, true, ""},
			{"unknown token", func(*hosts.Vault) {}, map[string]string{"VAULT_TOKEN": "hvs.0123456789"}, false, "the token is expired or unknown"},
			{"no token", func(*hosts.Vault) {}, nil, false, "no token: set vault.token_file"},
			{"token file missing", func(c *hosts.Vault) { c.TokenFile = filepath.Join(dir, "absent") }, nil, false, "vault.token_file"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				c := base
				tt.change(&c)
				a := AskVault(context.Background(), c, func(k string) string { return tt.env[k] }, facts)
				if a.Exists["NAME"] != tt.known {
					t.Errorf("answer %+v", a)
				}
				if got := strings.Join(lines(a.Rows, report.Info, report.Warn), "\n"); tt.want != "" && !strings.Contains(got, tt.want) {
					t.Errorf("rows %q, want %q", got, tt.want)
				}
			})
		}
	})
}

// A Vault that cannot be asked is INFO, says why, and stops nothing.
func TestVaultFaults(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		fault      func(w http.ResponseWriter, r *http.Request) bool
	}{
		{"sealed", "Vault is sealed", func(w http.ResponseWriter, _ *http.Request) bool {
			vaulttest.Refuse(w, http.StatusServiceUnavailable, "Vault is sealed")
			return true
		}},
		{"performance standby", "is a standby", func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(473); return true }},
		{"broken answer", "not checked", func(w http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(w, "<html>"); return true }},
		{"connection cut", "Vault cannot be asked", func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vaulttest.Each(t, func(t *testing.T, f *vaulttest.Fixture) {
				token := f.Token(t, f.Policy(t, "reader", reader))
				f.Fault(tt.fault)
				_, rows := ask(t, f, "g", token, "NAME")
				got := strings.Join(lines(rows, report.Info), "\n")
				if !strings.Contains(got, tt.want) || !strings.Contains(got, "checked 0 of 1") || len(lines(rows, report.Warn)) != 0 {
					t.Errorf("rows: %v", lines(rows, report.Warn, report.Info))
				}
			})
		})
	}
	t.Run("a hiccup is asked again", func(t *testing.T) {
		vaulttest.Each(t, func(t *testing.T, f *vaulttest.Fixture) {
			f.Secret(t, "shared/NAME", canary)
			token, n := f.Token(t, f.Policy(t, "reader", reader)), 0
			f.Fault(func(w http.ResponseWriter, _ *http.Request) bool {
				if n++; n%3 != 1 {
					return false
				}
				vaulttest.Refuse(w, http.StatusBadGateway)
				return true
			})
			if a, rows := ask(t, f, "", token, "NAME"); !a.Exists["NAME"] {
				t.Errorf("rows: %v", rows)
			}
		})
	})
	t.Run("untrusted certificate", func(t *testing.T) {
		srv := httptest.NewTLSServer(vaulttest.New())
		defer srv.Close()
		facts := &Facts{Selections: []Selection{{Name: "NAME"}}}
		lookup := func(k string) string { return map[string]string{"VAULT_TOKEN": "x"}[k] }
		a := AskVault(context.Background(), hosts.Vault{Address: srv.URL}, lookup, facts)
		if got := fmt.Sprint(a.Rows); !strings.Contains(got, "set vault.ca") {
			t.Errorf("rows: %s", got)
		}
		ca := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		a = AskVault(context.Background(), hosts.Vault{Address: srv.URL, CA: ca}, lookup, facts)
		if got := fmt.Sprint(a.Rows); strings.Contains(got, "certificate") {
			t.Errorf("with the CA: %s", got)
		}
	})
	t.Run("not named anywhere", func(t *testing.T) {
		if a := AskVault(context.Background(), hosts.Vault{}, func(string) string { return "" }, &Facts{}); a != nil {
			t.Errorf("answer %+v", a)
		}
	})
}

// Requests grow with folders; one metadata read for each selected name.
func TestVaultRequests(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, f *vaulttest.Fixture) {
		const folders, each = 50, 4
		var names []string
		for i := range folders * each {
			n := fmt.Sprintf("f%02d/N%d", i%folders, i/folders)
			f.Secret(t, "shared/"+n, canary)
			names = append(names, n)
		}
		group, _ := f.Group(t, "platform", []string{f.Policy(t, "platform", `path "MOUNT/data/shared/*" { capabilities = ["read"] }`)}, nil)
		token := f.Token(t, f.Policy(t, "reader", reader))
		_, rows := ask(t, f, group, token, append(names, "BARE")...)
		metadata := 0
		all := f.Requests()
		for _, r := range all {
			if strings.HasPrefix(r, "GET "+f.Mount+"/metadata/") {
				metadata++
			}
		}
		if metadata != len(names) || len(all)-metadata > 55 {
			t.Errorf("%d metadata reads for %d names, %d other requests", metadata, len(names), len(all)-metadata)
		}
		if w := lines(rows, report.Warn); len(w) != 1 {
			t.Errorf("rows: %v", w)
		}
	})
}
