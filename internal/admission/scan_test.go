package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

const canary = "canary-value-9f3b"

// docs makes a docs tree of files below a temp folder.
func docs(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func manifest(t testing.TB, secrets, global []string) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"capabilities": map[string]any{"selected_secrets": secrets, "selected_global_secret_names": global}})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func ownStore(project string, names ...string) (file, content string) {
	secrets := map[string]string{}
	for _, n := range names {
		secrets[n] = canary
	}
	b, _ := json.Marshal(map[string]any{"workflow_path": project, "secrets": secrets})
	return "workflow_secrets/" + storeKey(project), string(b)
}

func env(kv map[string]string) Environment {
	return Environment{Lookup: func(k string) string { return kv[k] }, Names: sortedKeys(kv)}
}

func lines(rows []report.Row, states ...report.State) []string {
	var out []string
	for _, r := range rows {
		if slices.Contains(states, r.State) {
			out = append(out, fmt.Sprintf("%s %s %s", r.State, r.Check, r.Detail))
		}
	}
	return out
}

func mustCollect(t testing.TB, root string, e Environment) *Facts {
	t.Helper()
	f, err := Collect(context.Background(), root, e)
	if err != nil {
		t.Fatalf("collect: %v", err)
	}
	return f
}

func TestK02WhereASecretCanExist(t *testing.T) {
	store, content := ownStore("Workflow/w1", "LOCAL_OK")
	files := map[string]string{
		"Workflow/w1/workflow.json":                  manifest(t, []string{"LOCAL_OK", "LOCAL_GONE"}, []string{"NOTION_KEY", "ENV_ONE", "GONE"}),
		"_users/_system_global_secrets/secrets.json": `{"NOTION_KEY":"enc:` + canary + `"}`,
		"_users/_shared/" + store:                    content,
	}
	rows := Judge(mustCollect(t, docs(t, files), env(map[string]string{"GLOBAL_SECRET_ENV_ONE": canary})), nil, hosts.Vault{})
	want := []string{
		"WARN secret-missing Workflow/w1/workflow.json: capabilities.selected_secrets names LOCAL_GONE, which exists nowhere",
		"WARN secret-missing Workflow/w1/workflow.json: capabilities.selected_global_secret_names names GONE, which exists nowhere",
	}
	if got := lines(rows, report.Warn); !slices.Equal(got, want) {
		t.Errorf("rows:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	_, other := ownStore("Workflow/other", "LOCAL_OK")
	files["_users/_shared/"+store] = other
	rows = Judge(mustCollect(t, docs(t, files), env(nil)), nil, hosts.Vault{})
	if got := strings.Join(lines(rows, report.Warn), "\n"); !strings.Contains(got, "names LOCAL_OK, which exists nowhere") {
		t.Errorf("a store of another project was counted:\n%s", got)
	}
}

func TestK01NamesOnly(t *testing.T) {
	const user, token = "u-123-secret-id", canary + canary + canary
	project := "_users/" + user + "/Chats/Work/projects/p1"
	store, content := ownStore(project, "MINE")
	root := docs(t, map[string]string{
		project + "/product.json":                                        manifest(t, []string{"MINE", "GONE"}, nil),
		"_users/" + user + "/" + store:                                   content,
		"_users/" + user + "/Crew/broken/workflow.json":                  `{"capabilities": "` + canary,
		"_users/" + user + "/workflow_secrets/" + storeKey("Workflow/x"): canary,
		"_users/" + user + "/Workflow/x/workflow.json":                   manifest(t, []string{"X"}, nil),
		"_users/_system_global_secrets/secrets.json":                     canary,
	})
	f := mustCollect(t, root, env(map[string]string{"GLOBAL_SECRET_ONE": canary, "CAPLAYER_SERVICE_URL": "http://127.0.0.1:1/" + canary, "CAPLAYER_SERVICE_TOKEN": token}))
	rows := Judge(f, nil, hosts.Vault{})
	for what, v := range map[string]any{"the facts that cross": f, "the rows": rows} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{canary, user, root} {
			if strings.Contains(string(b), bad) {
				t.Errorf("%s hold %q: %s", what, bad, b)
			}
		}
	}
	if got := strings.Join(lines(rows, report.Warn), "\n"); !strings.Contains(got, "_users/<user>/Chats/Work/projects/p1/product.json: capabilities.selected_secrets names GONE") || strings.Contains(got, "MINE") {
		t.Errorf("rows:\n%s", got)
	}
}

func TestK06OddManifests(t *testing.T) {
	good := manifest(t, []string{"GONE"}, nil)
	for _, tt := range []struct {
		name, content string
		want          string // of the only WARN but secret-missing; "" for none
		missing       int
	}{
		{"good", good, "", 1},
		{"no JSON", "{\n\n nope", "no JSON at line 3", 0},
		{"a list", "[]", "no JSON object", 0},
		{"empty, case B84", "", "0 secrets declared", 0},
		{"blank", " \r\n", "0 secrets declared", 0},
		{"no capabilities", "{}", "", 0},
		{"capabilities a list", `{"capabilities":[]}`, "", 0},
		{"capabilities null", `{"capabilities":null}`, "", 0},
		{"other case", `{"Capabilities":{"selected_secrets":["GONE"]}}`, "", 0},
		{"names of other types", `{"capabilities":{"selected_secrets":[1,null,{"a":"GONE"},["GONE"],"GONE"]}}`, "", 1},
		{"a name twice", `{"capabilities":{"selected_secrets":["GONE","GONE"]}}`, "", 1},
		{"list is a string", `{"capabilities":{"selected_secrets":"GONE"}}`, "", 0},
		{"CRLF between, case B82", strings.ReplaceAll(`{"capabilities":`+"\n"+`{"selected_secrets":`+"\n"+`["GONE"]}}`, "\n", "\r\n"), "", 1},
		{"CR in the names, case B82", `{"capabilities":{"selected_secrets":["GONE\r","ALSO\r"]}}`, "carriage return", 2},
		{"control bytes, case B70", `{"capabilities":{"selected_secrets":["A\u001b[31m"]}}`, `"A\x1b[31m", which is no secret's name`, 0},
		{"climbing", `{"capabilities":{"selected_secrets":["../../auth/x"]}}`, "no clean path", 0},
		{"empty name", `{"capabilities":{"selected_secrets":[""]}}`, "it is empty", 0},
		{"deep", strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000), "no JSON", 0},
		{"huge", good + strings.Repeat(" ", maxManifest), "larger than 1024 KiB", 0},
		{"many", `{"capabilities":{"selected_secrets":[` + strings.Repeat(`"`+strings.Repeat("x", 600)+`",`, 1) + `"GONE"]}}`, "longer than 512 bytes", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := docs(t, map[string]string{"Workflow/w/workflow.json": tt.content, "Workflow/z/product.json": manifest(t, []string{"AFTER"}, nil)})
			rows := Judge(mustCollect(t, root, env(nil)), nil, hosts.Vault{})
			var odd []string
			missing := 0
			for _, r := range rows {
				switch {
				case r.Check == "secret-missing":
					missing++
				case r.State == report.Warn:
					odd = append(odd, r.Detail)
				}
			}
			if missing != tt.missing+1 {
				t.Errorf("%d missing, want %d and the one of the next manifest", missing, tt.missing)
			}
			if got := strings.Join(odd, "\n"); len(odd) > 1 || tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("WARN %q, want one with %q", got, tt.want)
			}
		})
	}
}

// A manifest full of names costs one look at each, and one WARN.
func TestK06ManyNames(t *testing.T) {
	var names []string
	for i := range 80_000 {
		names = append(names, fmt.Sprint("N", i))
	}
	bad := strings.Repeat(`"../x",`, 1000)
	root := docs(t, map[string]string{
		"Workflow/many/workflow.json": `{"capabilities":{"selected_secrets":["` + strings.Join(names, `","`) + `"]}}`,
		"Workflow/bad/workflow.json":  `{"capabilities":{"selected_secrets":[` + bad + `"OK"]}}`,
	})
	f := mustCollect(t, root, env(nil))
	if len(f.Selections) != maxNames+1 {
		t.Errorf("%d names, want %d", len(f.Selections), maxNames+1)
	}
	got := lines(f.Rows, report.Warn)
	want := []string{
		`WARN secret-manifest Workflow/bad/workflow.json: capabilities.selected_secrets names ../x, which is no secret's name: it is no clean path (and 999 more)`,
		`WARN secret-manifest Workflow/many/workflow.json: capabilities.selected_secrets has more than 1000 names; the last 79000 are not checked`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows:\n%s", strings.Join(got, "\n"))
	}
}

// A shared project may be named after a user.
func TestK01UserNamesAFolder(t *testing.T) {
	root := docs(t, map[string]string{
		"_users/u-123/Workflow/w/workflow.json": "{}",
		"Workflow/u-123/workflow.json":          manifest(t, []string{"GONE"}, nil),
	})
	f := mustCollect(t, root, env(nil))
	if got := f.Selections[0].Manifest; got != "Workflow/<user>/workflow.json" {
		t.Errorf("shown as %q", got)
	}
}

// What a user can plant leads nowhere and stops nothing.
func TestK06HostileTrees(t *testing.T) {
	root := docs(t, map[string]string{
		"outside/workflow.json":                   manifest(t, []string{"OUTSIDE"}, nil),
		"_users/u1/Workflow/ok/workflow.json":     manifest(t, []string{"FOUND"}, nil),
		"_users/u1/Workflow/.hidden/product.json": manifest(t, []string{"HIDDEN"}, nil),
		"_users/u1/Workflow/dir/workflow.json/x":  "",
		"_users/_shared/Workflow/w/workflow.json": manifest(t, []string{"SHARED_IS_NO_USER"}, nil),
		"_users/u2/Workflow":                      "a file",
	})
	at := filepath.Join(root, "_users/u1/Workflow")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink(filepath.Join(root, "outside"), filepath.Join(at, "linked")))
	must(os.Mkdir(filepath.Join(at, "filelink"), 0o755))
	must(os.Symlink(filepath.Join(root, "outside/workflow.json"), filepath.Join(at, "filelink/workflow.json")))
	must(os.Mkdir(filepath.Join(at, "fifo"), 0o755))
	must(syscall.Mkfifo(filepath.Join(at, "fifo/workflow.json"), 0o644))
	must(os.Symlink("/", filepath.Join(root, "_users/u3")))

	rows := Judge(mustCollect(t, root, env(nil)), nil, hosts.Vault{})
	got := strings.Join(lines(rows, report.Warn), "\n")
	for _, want := range []string{
		"names FOUND", "_users/<user>/Workflow/fifo/workflow.json: it is no regular file",
		"_users/<user>/Workflow/filelink/workflow.json: it is no regular file", "_users/<user>/Workflow/dir/workflow.json: it is no regular file",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no line with %q", want)
		}
	}
	for _, bad := range []string{"OUTSIDE", "HIDDEN", "SHARED_IS_NO_USER"} {
		if strings.Contains(got, bad) {
			t.Errorf("followed what it must not: %s", bad)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

func TestK06AllRoots(t *testing.T) {
	files := map[string]string{}
	n := 0
	for _, owner := range []string{"", "_users/u1/", "_users/u2/"} {
		for _, root := range projectRoots {
			for _, m := range manifestNames {
				files[owner+root+"/p/"+m] = manifest(t, []string{fmt.Sprintf("N%d", n)}, nil)
				n++
			}
		}
	}
	f := mustCollect(t, docs(t, files), env(nil))
	if f.Manifests != n || len(f.Selections) != n {
		t.Errorf("%d manifests with %d names, want %d", f.Manifests, len(f.Selections), n)
	}
}

func TestScanThatCannotRun(t *testing.T) {
	_, err := Collect(context.Background(), filepath.Join(t.TempDir(), "absent"), env(nil))
	if report.CodeOf(err) != report.ExitUnfinished {
		t.Errorf("docs absent: %v, want exit 3", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Collect(ctx, docs(t, map[string]string{"Workflow/w/workflow.json": "{}"}), env(nil)); err == nil {
		t.Error("a scan that was stopped has an answer")
	}
}

func TestK04Gateway(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	root := docs(t, map[string]string{
		"Workflow/a/workflow.json":                   manifest(t, nil, []string{"GRANTED", "UNGRANTED"}),
		"Workflow/b/workflow.json":                   manifest(t, nil, []string{"UNGRANTED"}),
		"_users/_system_global_secrets/secrets.json": `{"GRANTED":1,"UNGRANTED":2}`,
	})
	secretName := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secretName, []byte(token+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		env    map[string]string
		serve  http.HandlerFunc
		want   string
		silent bool // no request may arrive
	}{
		{"granted by token", map[string]string{"CAPLAYER_SERVICE_TOKEN": token}, nil, "WARN secret-no-platform-grant UNGRANTED: selected by 2 manifest(s)", false},
		{"granted by token file, which is preferred", map[string]string{"CAPLAYER_SERVICE_TOKEN_FILE": secretName, "CAPLAYER_SERVICE_TOKEN": "short"}, nil, "WARN secret-no-platform-grant UNGRANTED: selected by 2 manifest(s)", false},
		{"token of ten characters", map[string]string{"CAPLAYER_SERVICE_TOKEN": "0123456789"}, nil, "INFO secret-gateway grants not checked: the gateway's token is shorter than 32 characters", true},
		{"no token", nil, nil, "INFO secret-gateway grants not checked: the gateway's token is shorter", true},
		{"token file missing", map[string]string{"CAPLAYER_SERVICE_TOKEN_FILE": "/nonexistent"}, nil, "INFO secret-gateway grants not checked: the token file", true},
		{"403", map[string]string{"CAPLAYER_SERVICE_TOKEN": token}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, "INFO secret-gateway grants not checked: the gateway answered 403", false},
		{"a redirect", map[string]string{"CAPLAYER_SERVICE_TOKEN": token}, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, "INFO secret-gateway grants not checked: the gateway answered 302", false},
		{"HTML", map[string]string{"CAPLAYER_SERVICE_TOKEN": token}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "not the expected document", false},
		{"another document", map[string]string{"CAPLAYER_SERVICE_TOKEN": token}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"ok":true}`) }, "not the expected document", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var seen []*http.Request
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen = append(seen, r)
				if tt.serve != nil {
					tt.serve(w, r)
					return
				}
				fmt.Fprint(w, `{"secrets":[{"name":"GRANTED"}]}`)
			}))
			defer srv.Close()
			vars := map[string]string{"CAPLAYER_SERVICE_URL": srv.URL + "/base/"}
			for k, v := range tt.env {
				vars[k] = v
			}
			rows := Judge(mustCollect(t, root, env(vars)), nil, hosts.Vault{})
			got := strings.Join(lines(rows, report.Warn, report.Info), "\n")
			if !strings.Contains(got, tt.want) {
				t.Errorf("rows:\n%s\nwant %q", got, tt.want)
			}
			if n := strings.Count(got, "secret-no-platform-grant"); strings.HasPrefix(tt.want, "WARN") != (n == 1) {
				t.Errorf("%d grant lines:\n%s", n, got)
			}
			if strings.Contains(got, token) || strings.Contains(got, srv.URL) {
				t.Errorf("token or address in the rows:\n%s", got)
			}
			if tt.silent {
				if len(seen) != 0 {
					t.Errorf("%d requests, want none", len(seen))
				}
				return
			}
			// The first 24 hex digits of sha256("w1").
			const path = "/base/api/admin/groups/everyone-60c5590f72eef292f9545afc/secrets"
			r := seen[0]
			if len(seen) != 1 || r.Method != "GET" || r.Header.Get("X-CapLayer-Actor") != "deploy-self-test" || r.Header.Get("Authorization") != "Bearer "+token {
				t.Errorf("%d requests, first %s %s %v", len(seen), r.Method, r.URL.Path, r.Header)
			}
			if r.URL.Path != path {
				t.Errorf("path %s, want %s", r.URL.Path, path)
			}
		})
	}
	t.Run("down", func(t *testing.T) {
		rows := Judge(mustCollect(t, root, env(map[string]string{"CAPLAYER_SERVICE_URL": "http://127.0.0.1:1", "CAPLAYER_SERVICE_TOKEN": token})), nil, hosts.Vault{})
		if got := strings.Join(lines(rows, report.Info), "\n"); !strings.Contains(got, "the gateway cannot be reached") {
			t.Errorf("rows:\n%s", got)
		}
	})
	t.Run("not configured", func(t *testing.T) {
		rows := Judge(mustCollect(t, root, env(nil)), nil, hosts.Vault{})
		if got := lines(rows, report.Info); len(got) != 2 || !strings.Contains(got[0], "neither Vault nor the gateway is configured") || !strings.Contains(got[1], "; grants checked for 0 of ") {
			t.Errorf("rows: %q", got)
		}
	})
}

// The line that says how much is known contradicts none above it.
func TestGrantsThatAreCounted(t *testing.T) {
	local, shared := Selection{Name: "OWN", Local: true}, Selection{Name: "ALL", Shared: true}
	gateway := &Grants{"ALL": true}
	for name, c := range map[string]struct {
		facts Facts
		want  string
	}{
		"nobody asked":        {Facts{Selections: []Selection{local, shared, {Name: "GONE"}}}, "checked 3 of 3 selected name(s) in 1 manifest(s); grants checked for 0 of 2 that need one"},
		"the gateway answers": {Facts{Selections: []Selection{local, shared, {Name: "GONE"}}, Gateway: gateway}, "grants checked for 2 of 2 that need one"},
		"the gateway fails":   {Facts{Selections: []Selection{local, shared}, GatewayFailed: true}, "grants checked for 0 of 1 that need one"},
		"a project's own":     {Facts{Selections: []Selection{local}}, "none needs a grant"},
	} {
		c.facts.Manifests = 1
		rows := Judge(&c.facts, nil, hosts.Vault{})
		if last := rows[len(rows)-1]; last.Check != "secret-admission" || !strings.HasSuffix(last.Detail, c.want) {
			t.Errorf("%s: %q, want %q", name, last.Detail, c.want)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"capabilities":{"selected_secrets":["A"],"selected_global_secret_names":["B"]}}`))
	f.Add([]byte("\xff\xfe"))
	f.Fuzz(func(t *testing.T, data []byte) {
		lists, err := parseManifest(data)
		if err != nil && lists != nil {
			t.Error("an answer and an error")
		}
		for _, l := range lists {
			for _, n := range l.names {
				if strings.ContainsAny(n, "\x00\n\r\x1b") || checkName(n) != nil {
					t.Errorf("%q passes as a name", n)
				}
			}
		}
	})
}
