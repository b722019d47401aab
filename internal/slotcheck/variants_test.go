package slotcheck_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentworks-deploy/internal/lab/labtest"
	"agentworks-deploy/internal/report"
)

// product is a platform on a lab: its account, folders, slots and ports.
type product struct {
	name, app, docs, prefix string
	mode                    string
	count, port             int
	umask                   string
}

func standard() product {
	return product{name: "vs", app: "/srv/vs", docs: "/srv/vs/data/docs", prefix: "slot", mode: "on", count: 50, port: 8000, umask: "022"}
}

// file is the product's host file.
func (p product) file(lab string) string {
	return fmt.Sprintf(`product: %[1]s
paths: {app: %[2]s, docs: %[3]s, home: %[2]s/home}
slots: {mode: %[4]s, prefix: %[5]s, count: %[6]d}
channels: {admin: {lab: {name: %[7]s}}, service: {lab: {name: %[7]s}}}
release: {keep: 2, services: [%[1]s-workspace, %[1]s-agent], health: ["http://127.0.0.1:%[8]d/api/health", "http://127.0.0.1:%[9]d/api/health"]}
`, p.name, p.app, p.docs, p.mode, p.prefix, p.count, lab, p.port, p.port+1)
}

// settle makes the product's platform out of the reference one, which stays
// where it is unless it is this one.
func (p product) settle() string {
	return fmt.Sprintf(`
getent passwd %[1]s >/dev/null || useradd --system --user-group --home-dir %[2]s/home --shell /bin/bash %[1]s
if [ %[2]s != /srv/vs ]; then mkdir -p %[2]s; cp -a /srv/vs/. %[2]s/; usermod -d %[2]s/home %[1]s; fi
if [ %[3]s != %[2]s/data/docs ]; then mkdir -p %[3]s; cp -a %[2]s/data/docs/. "$(readlink -f %[3]s)/"; rm -r %[2]s/data; chown -R %[1]s:%[1]s "$(readlink -f %[3]s)"; fi
chown -hR %[1]s:%[1]s %[2]s
cd %[2]s/home/.config/systemd/user
for unit in workspace agent; do
	sed -i 's#/srv/vs#%[2]s#g' vs-$unit.service
	[ %[1]s = vs ] || { mv vs-$unit.service %[1]s-$unit.service; rm default.target.wants/vs-$unit.service; ln -s ../%[1]s-$unit.service default.target.wants/; }
done
sed -i -e 's#/srv/vs/data/docs#%[3]s#; s#/srv/vs#%[2]s#; s#SLOTS=.*#SLOTS=%[4]s#; s#SLOT_PREFIX=.*#SLOT_PREFIX=%[5]s#' %[2]s/.env
cat >>%[2]s/.env <<END
VS_WORKSPACE_ADDR=127.0.0.1:%[6]d
VS_AGENT_ADDR=127.0.0.1:%[7]d
END
[ %[5]s = slot ] || cat >>%[2]s/.env <<END
AGENTWORKS_SLOTCTL=/usr/local/libexec/agentworks/%[1]s/slotctl
AGENTWORKS_SLOTS_FILE=/etc/agentworks/%[1]s/slots.json
END
`, p.name, p.app, p.docs, p.mode, p.prefix, p.port, p.port+1)
}

// operate brings the product up in the lab and gives its operator.
func (p product) operate(t *testing.T, l *labtest.Lab, dir string) operator {
	t.Helper()
	o := operator{Lab: l, bin: labtest.Binaries(t), hosts: dir, host: p.name}
	if err := os.WriteFile(filepath.Join(dir, p.name+".yaml"), []byte(p.file(l.Name)), 0o644); err != nil {
		t.Fatal(err)
	}
	o.sh(t, p.settle())
	for _, args := range [][]string{
		{"provision", p.name},
		{"slots", "assign", p.name, "u1"},
		{"slots", "assign", p.name, "u2"},
		{"deploy", p.name, "--release", filepath.Join(o.bin, "sample-release")},
	} {
		if out, err := labtest.Command(t, p.umask, append([]string{"--hosts-dir", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	return o
}

// TestHealthyVariantsPass: hosts that are as they should be, each in a way of its
// own. None may fail, and each row that says SKIP or WARN is expected.
func TestHealthyVariantsPass(t *testing.T) {
	t.Parallel()
	with := func(change func(p *product)) product {
		p := standard()
		change(&p)
		return p
	}
	tests := []struct {
		name    string
		product product
		before  string   // in the fresh lab
		after   string   // on the finished host
		odd     []string // rows that are SKIP or WARN
	}{
		{name: "docs on another file system", before: `mount -t tmpfs -o mode=0755 tmpfs /data`,
			product: with(func(p *product) { p.docs = "/data/vs/docs" })},
		{name: "docs root behind a link", before: `mkdir -p /data/real/docs; ln -s real/docs /data/docs`,
			product: with(func(p *product) { p.docs = "/data/docs" })},
		{name: "an app path with a dot and a dash", product: with(func(p *product) { p.app, p.docs = "/srv/v-s.app", "/srv/v-s.app/data/docs" })},
		{name: "umask 077", product: with(func(p *product) { p.umask = "077" })},
		{name: "500 slots", product: with(func(p *product) { p.count = 500 })},
		{name: "slots optin, one user without", product: with(func(p *product) { p.mode = "optin" }),
			after: `printf '{"slots":{"slot01":"u1"}}' >/etc/agentworks/slots.json; chgrp -R vs /srv/vs/data/docs/_users/u2`,
			odd:   []string{"accounts-without-slot"}},
		{name: "users without projects", product: standard(), after: `rm -r /srv/vs/data/docs/_users/*/Chats`,
			odd: []string{"pwd-crew-project [slot01]", "pwd-code-project [slot01]", "pwd-crew-project [slot02]", "pwd-code-project [slot02]"}},
		{name: "nobody", product: standard(), after: `printf '{"slots":{}}' >/etc/agentworks/slots.json; rm -r /srv/vs/data/docs/_users/*; printf '{"users":[]}' >/srv/vs/data/docs/config/users.json`,
			odd: []string{"deny-other-user [slot50]"}},
		{name: "ACLs instead of modes", product: standard(), after: `cd /srv/vs
for d in . data data/docs data/docs/_users releases releases/vs-* releases/vs-*/bin slots slots/home slots/state slots/run; do chmod o-rwx $d; setfacl -m g:slotshared:--x $d; done`,
			odd: []string{"acl-present"}},
		{name: "no browser profile, no workflow", product: standard(), after: `rm -r /srv/vs/state/browser-profile-projects /srv/vs/data/docs/Workflow`,
			odd: []string{"pwd-workflow [slot01]", "deny-browser-profile [slot01]", "deny-browser-profile-list [slot01]",
				"pwd-workflow [slot02]", "deny-browser-profile [slot02]", "deny-browser-profile-list [slot02]",
				"pwd-workflow [slot50]", "deny-browser-profile [slot50]", "deny-browser-profile-list [slot50]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := labtest.New(t, labtest.Reference())
			if tt.before != "" {
				l.MustExec(t, "/bin/sh", "-euc", tt.before)
			}
			o := tt.product.operate(t, l, t.TempDir())
			if tt.after != "" {
				o.sh(t, tt.after)
			}
			o.healthy(t, tt.odd)
		})
	}
	t.Run("a second product on the same host", func(t *testing.T) {
		t.Parallel()
		l, dir := labtest.New(t, labtest.Reference()), t.TempDir()
		second := product{name: "confida", app: "/srv/confida", docs: "/srv/confida/data/docs", prefix: "cf", mode: "on", count: 20, port: 8010, umask: "022"}
		o2 := second.operate(t, l, dir)
		o1 := standard().operate(t, l, dir)
		o1.healthy(t, nil)
		o2.healthy(t, nil)
	})
}

func (o operator) healthy(t *testing.T, odd []string) {
	t.Helper()
	r := o.audit(t, "--level", "full")
	if r.Exit != 0 {
		t.Errorf("exit %d:\n%s", r.Exit, text(r))
	}
	if got := of(r, report.Skip, report.Warn); !slices.Equal(got, odd) {
		t.Errorf("SKIP and WARN are %q, want %q:\n%s", got, odd, text(r))
	}
	for _, row := range r.Rows {
		for _, id := range []string{"u1", "u2"} {
			if slices.Contains(strings.FieldsFunc(row.Detail, func(c rune) bool { return strings.ContainsRune(" /:,;", c) }), id) {
				t.Errorf("%s tells a user: %s", name(row), row.Detail)
			}
		}
	}
}
