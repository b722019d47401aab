package fleet_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentworks-deploy/internal/admission/vaulttest"
	"agentworks-deploy/internal/lab/labtest"
)

const (
	secretValue = "canary-4c1f-secret-value"
	secretToken = "canary-4c1f-token-0123456789abcdef"
	secretUser  = "aa73da63e26b40a1"
	vaultAt     = "127.0.0.1:8200"
)

// standIn is this test binary as a Vault in the lab; see TestMain.
func standIn(listen string, out io.Writer) error {
	names := []string{"FINE", "UNGRANTED"}
	return vaulttest.Program(listen, names, func(name string) bool { return name == "FINE" }, secretValue, out)
}

// secretive is a lab with a release live, a Vault in it, and the canaries in
// Vault, in every store and in the services' environment.
func secretive(t *testing.T) operator {
	t.Helper()
	o := operatorOf(t, labtest.New(t, labtest.Reference()))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.lab.CopyIn(t, self, "/usr/local/bin/vault-stand-in", 0o755)
	o.lab.MustExec(t, "systemd-run", "--quiet", "--unit=vault", "-p", "StandardOutput=null", "-E", "FLEET_TEST_VAULT="+vaultAt, "/usr/local/bin/vault-stand-in")
	o.inLab(t, "/requests") // it answers once it is up

	user := "/srv/vs/data/docs/_users/" + secretUser
	manifest := `{"capabilities":{"selected_secrets":["FINE","GONE","OWN"],"selected_global_secret_names":["UNGRANTED","PROVIDER","MANAGED"]}}`
	project := "_users/" + secretUser + "/Chats/Work/projects/p1"
	o.lab.MustExec(t, "/bin/sh", "-euc", `
cd /srv/vs/data/docs
sed -i 's/"users": *\[/"users":[{"id":"'$1'","email":"`+secretUser+`@example.com"},/' config/users.json
mkdir -p $2/Chats/Work/projects/p1 $2/workflow_secrets _users/_system_global_secrets
printf %s "$3" >$2/Chats/Work/projects/p1/product.json
printf '{"workflow_path":"%s","secrets":{"OWN":"%s"}}' "$4" "$5" >$2/workflow_secrets/$(printf %s "$4" | sha256sum | cut -c1-64).json
printf '{"MANAGED":"enc:%s"}' "$5" >_users/_system_global_secrets/secrets.json
chmod 0700 _users/_system_global_secrets
printf 'GLOBAL_SECRET_EXTRA=%s\nCAPLAYER_SERVICE_URL=http://127.0.0.1:9/\nCAPLAYER_SERVICE_TOKEN=0123456789\n' "$5" >>/srv/vs/.env
printf 'hvs.reader-of-names\n' >/srv/vs/vault-token; chmod 0600 /srv/vs/vault-token
chown -R vs:vs _users/_system_global_secrets $2 /srv/vs/vault-token`, "sh", secretUser, user, manifest, project, secretValue)
	o.must(t, "provision", "lab")
	for _, u := range []string{"u1", "u2", secretUser} {
		o.must(t, "slots", "assign", "lab", u)
	}
	return o
}

// inLab asks the stand-in from within the lab, where it listens.
func (o operator) inLab(t *testing.T, request string) string {
	t.Helper()
	method := "GET"
	if strings.HasPrefix(request, "/fault/") {
		method = "PUT"
	}
	ask := fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/8200 && printf '%s %s HTTP/1.0\r\n\r\n' >&3 && cat <&3`, method, request)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		stdout, stderr, code := o.lab.Exec(t, "/bin/bash", "-c", ask)
		if code == 0 && stdout != "" {
			return stdout
		}
		if time.Now().After(deadline) {
			t.Fatalf("the stand-in does not answer: %s", stderr)
		}
	}
}

func vaultFlags(more ...string) []string {
	return append([]string{"--set", "vault.address=http://" + vaultAt, "--set", "vault.mount=secret", "--set", "vault.prefix=shared",
		"--set", "vault.platform_group=platform", "--set", "vault.token_file=/srv/vs/vault-token"}, more...)
}

// watch looks at every command line of the machine, the lab's among them, until
// the returned function is called; that answers with what it found.
func watch(canaries []string) func() []string {
	stop, found := make(chan struct{}), make(chan []string)
	go func() {
		var seen []string
		for {
			select {
			case <-stop:
				found <- seen
				return
			case <-time.After(15 * time.Millisecond): // the shortest of our programs lives longer
			}
			files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, f := range files {
				line, _ := os.ReadFile(f) // it may have ended
				for _, c := range canaries {
					if bytes.Contains(line, []byte(c)) && !slices.Contains(seen, string(line)) {
						seen = append(seen, string(line))
					}
				}
			}
		}
	}()
	return func() []string { close(stop); return <-found }
}

func TestAdmissionNamesOnlyAndNeverStopsADeploy(t *testing.T) {
	o := secretive(t)
	canaries := []string{secretValue, secretToken, secretUser, "hvs.reader-of-names"}
	ended := watch(canaries)
	said := func(want int, args ...string) string {
		t.Helper()
		stdout, stderr, code := o.run(t, args...)
		if code != want {
			t.Errorf("%q: exit %d, want %d\n%s%s", args, code, want, stdout, stderr)
		}
		for _, c := range canaries {
			if strings.Contains(stdout+stderr, c) {
				t.Errorf("%q: the output holds %q:\n%s%s", args, c, stdout, stderr)
			}
		}
		return stdout
	}
	holds := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in\n%s", w, text)
			}
		}
	}
	const (
		gone      = "WARN secret-missing _users/<user>/Chats/Work/projects/p1/product.json: capabilities.selected_secrets names GONE, which exists nowhere"
		ungranted = "WARN secret-no-platform-grant UNGRANTED: selected by 1 manifest(s)"
		short     = "INFO secret-gateway grants not checked: the gateway's token is shorter than 32 characters"
	)
	holds(said(0, vaultFlags("deploy", "lab")...), gone, short, "deployed: ")

	// Two sources of grants: with the gateway unanswered nothing is said to be
	// ungranted. Without it, Vault's word stands.
	o.lab.MustExec(t, "sed", "-i", "/CAPLAYER/d; /GLOBAL_SECRET_EXTRA/d", "/srv/vs/.env")
	o.lab.MustExec(t, "systemctl", "--user", "-M", "vs@", "restart", "vs-agent")
	for _, args := range [][]string{{"admission", "scan", "lab"}, {"slotcheck", "lab", "--level", "full"}, {"admission", "scan", "lab", "--format", "json"}} {
		text := said(0, vaultFlags(args...)...)
		if !slices.Contains(args, "json") {
			holds(text, gone, ungranted)
		}
		if n := strings.Count(text, "which exists nowhere"); n != 1 {
			t.Errorf("%q: %d names are missing, want 1:\n%s", args, n, text)
		}
	}
	said(1, vaultFlags("admission", "scan", "lab", "--strict")...)
	if text := said(0, vaultFlags("admission", "scan", "lab", "--quiet")...); text != "" {
		t.Errorf("a quiet run says %q", text)
	}
	for line := range strings.Lines(o.inLab(t, "/requests")) {
		if strings.Contains(line, "secret/data") {
			t.Errorf("a value was asked for: %s", line)
		}
	}

	// Whatever is wrong with Vault, the deploy goes on.
	for _, tt := range []struct{ fault, want string }{
		{"sealed", "INFO secret-vault not checked: Vault is sealed"},
		{"list", `WARN secret-vault names below secret/metadata/shared not checked: permission denied: the token's policies lack "list" on secret/metadata/shared`},
		{"policies", `INFO secret-vault grants not checked: policy platform: permission denied: the token's policies lack "read" on sys/policies/acl/platform`},
	} {
		o.inLab(t, "/fault/"+tt.fault)
		holds(said(0, vaultFlags("slotcheck", "lab")...), tt.want)
	}
	o.lab.MustExec(t, "systemctl", "stop", "vault")
	holds(said(0, vaultFlags("deploy", "lab", "--provision=false")...), "INFO secret-vault not checked: Vault cannot be asked: connection refused", "deployed: ")

	// The scan itself cannot run: 3, and the deploy's section says so.
	o.lab.MustExec(t, "chmod", "0", "/srv/vs/data")
	_, stderr, code := o.run(t, vaultFlags("admission", "scan", "lab")...)
	o.lab.MustExec(t, "chmod", "0755", "/srv/vs/data")
	if code != 3 || !strings.Contains(stderr, "open the docs root") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if lines := ended(); len(lines) > 0 {
		t.Errorf("on command lines: %q", lines)
	}
	if log := o.lab.MustExec(t, "/bin/sh", "-c", "journalctl --no-pager -o cat; cat /var/log/*.log 2>/dev/null || true"); strings.Contains(log, secretValue) {
		t.Error("the journal holds the value")
	}
}

// From the operator's side only names cross, and one's own VAULT_TOKEN is used.
func TestAdmissionFromTheOperator(t *testing.T) {
	o := ready(t)
	read, write := io.Pipe()
	failed := make(chan error, 1)
	go func() { failed <- standIn("127.0.0.1:0", write) }()
	var addr, token string
	if _, err := fmt.Fscan(read, &addr, &token); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VAULT_TOKEN", token)
	file := "/srv/vs/data/docs/Workflow/wf1/product.json"
	o.lab.WriteFile(t, file, `{"capabilities":{"selected_secrets":["FINE","GONE","UNGRANTED"]}}`, 0o644)
	defer o.lab.MustExec(t, "rm", file)
	stdout, stderr, code := o.run(t, "admission", "scan", "lab", "--set", "vault.from=operator", "--set", "vault.address="+addr, "--set", "vault.mount=secret",
		"--set", "vault.prefix=shared", "--set", "vault.platform_group=platform")
	if code != 0 || strings.Count(stdout, "WARN ") != 2 || !strings.Contains(stdout, "names GONE, which exists nowhere") || !strings.Contains(stdout, "secret-no-platform-grant UNGRANTED") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	resp, err := http.Get(addr + "/requests")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	asked, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(asked), "LIST secret/metadata/shared") || strings.Contains(string(asked), "secret/data") {
		t.Errorf("requests: %s, %v", asked, err)
	}
	select {
	case err := <-failed:
		t.Error(err)
	default:
	}
}

// A host that may not go live is refused before anything changes, with all
// reasons at once, whether it would be provisioned first or not.
func TestDeployRefusesAHostThatMayNotGoLive(t *testing.T) {
	o := ready(t)
	retired := o.release(t, "retired")
	if err := os.WriteFile(filepath.Join(retired, "bin/tool.py"), []byte("def trigger_and_auto_notify(): pass\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o.lab.MustExec(t, "chmod", "0644", "/srv/vs/.env")
	defer o.lab.MustExec(t, "chmod", "0600", "/srv/vs/.env")
	for _, provision := range []string{"--provision", "--provision=false"} {
		for _, plan := range []string{"--plan", "--plan=false"} {
			before := o.lab.Snapshot(t, "/srv", "/etc", "/usr/local", "/var/lib/agentworks-deploy")
			stdout, stderr, code := o.run(t, "deploy", "lab", provision, plan, "--release", retired, "--set", "tier=team", "--set", "slots.mode=off", "--set", "env.required=NO_SUCH_KEY")
			for _, want := range []string{"slots.mode is off on a team host", "listen.auth is false", "the release holds retired tools: trigger_and_auto_notify",
				"/srv/vs/.env is open to others -- fix: chmod 0600 /srv/vs/.env", "NO_SUCH_KEY is missing"} {
				if !strings.Contains(stdout, "FAIL go-live: ") || !strings.Contains(stdout, want) {
					t.Errorf("%s %s: no %q in\n%s", provision, plan, want, stdout)
				}
			}
			if code != 1 {
				t.Errorf("%s %s: exit %d, %s", provision, plan, code, stderr)
			}
			if diff := before.DiffTimes(o.lab.Snapshot(t, "/srv", "/etc", "/usr/local", "/var/lib/agentworks-deploy")); len(diff) > 0 {
				t.Errorf("%s %s: changed %q", provision, plan, diff)
			}
		}
	}
}

// Without slots a fresh lab's users could run nothing: the deploy provisions, and
// says what is missing.
func TestFirstDeployWantsSlotsForAllUsers(t *testing.T) {
	o := operatorOf(t, labtest.New(t, labtest.Reference()))
	stdout, _, code := o.run(t, "deploy", "lab")
	if code != 1 || !strings.Contains(stdout, "FAIL go-live: 2 of 2 enabled account(s) without a slot") {
		t.Errorf("exit %d\n%s", code, stdout)
	}
	if _, _, code := o.lab.Exec(t, "test", "-e", "/srv/vs/current"); code == 0 {
		t.Error("a release is live")
	}
}
