package slotcheck_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
)

var update = flag.Bool("update", false, "write the golden files anew")

// breakage is one thing that goes wrong on a slot host, made by root in the
// lab. What the script leaves beside the break is removed by after.
type breakage struct {
	name   string
	script string
	after  string
	full   bool // only level full can find it
}

const (
	libexec  = "/usr/local/libexec/agentworks"
	dropFake = `rm -f /srv/vs/releases/*/bin/real-runner`
)

// fake is a script that puts body, a shell script, in the launcher's place; the
// real one stays beside it.
func fake(body string) string {
	return `cd /srv/vs/current/bin
cp -p video-studio-landlock-runner real-runner
cat >.fake <<'END'
#!/bin/sh
` + body + `
END
chmod 0755 .fake; chown vs:vs .fake; mv .fake video-studio-landlock-runner`
}

// breakages are those of docs/slotcheck.md, in its order.
func breakages() []breakage {
	return []breakage{
		{name: "allowed_cwd without the docs root", script: `sed -i '/"allowed_cwd"/,/]/{/docs/d}' ` + libexec + `/slotctl.json`},
		{name: "docs_root elsewhere", script: `sed -i 's#"docs_root": "[^"]*"#"docs_root": "/srv/elsewhere"#' ` + libexec + `/slotctl.json`},
		{name: "slotctl.json missing", script: `rm ` + libexec + `/slotctl.json`},
		{name: "slotctl.json writable by others", script: `chmod 0666 ` + libexec + `/slotctl.json`},
		{name: "allowed_exec of another path", script: `sed -i 's#/srv/vs/releases/#/srv/vs/release/#' ` + libexec + `/slotctl.json`},
		{name: "releases 0700", script: `chmod 0700 /srv/vs/releases`},
		{name: "launcher 0700", script: `chmod 0700 /srv/vs/current/bin/video-studio-landlock-runner`},
		{name: "slots.json root:root", script: `chown root:root /etc/agentworks/slots.json`},
		{name: "slots.json 0644", script: `chmod 0644 /etc/agentworks/slots.json`},
		{name: "slots.json owned by the service", script: `chown vs:vs /etc/agentworks/slots.json`},
		{name: "slots.json absent", script: `cp -p /etc/agentworks/slots.json /root/slots.json; rm /etc/agentworks/slots.json`,
			after: `cp -p /root/slots.json /etc/agentworks/slots.json; rm /root/slots.json`},
		{name: "a launcher that fails on an unreadable grant", script: fake(`real=${0%/*}/real-runner
closed=$("$real" --config /proc/self/fd/3 -- /bin/true 2>&1 | sed -n 's/^SANDBOX_GRANT_SKIPPED: \(.*\) is not accessible.*/\1/p')
[ -z "$closed" ] || { echo "SANDBOX_UNAVAILABLE: inspect Landlock path: stat $closed: permission denied" >&2; exit 125; }
exec "$real" "$@"`), after: dropFake},
		{name: "a launcher that enforces nothing", script: fake(`while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
[ $# -gt 1 ] || { echo "SANDBOX_UNAVAILABLE: usage" >&2; exit 125; }
shift
exec "$@"`), after: dropFake},
		{name: "a launcher that always exits 125", script: fake(`echo "SANDBOX_UNAVAILABLE: not today" >&2
exit 125`), after: dropFake},
		{name: "sudo rule missing", script: `rm /etc/sudoers.d/agentworks-slots`},
		{name: "sudo rule in a file with a dot", script: `mv /etc/sudoers.d/agentworks-slots /etc/sudoers.d/agentworks-slots.conf`,
			after: `rm /etc/sudoers.d/agentworks-slots.conf`},
		{name: "sudo rule for another path", script: `sed -i 's#libexec/agentworks#libexec/elsewhere#' /etc/sudoers.d/agentworks-slots`},
		{name: "slot account missing", script: `userdel slot02 2>/dev/null; ! getent passwd slot02`},
		{name: "a user's tree with another slot's group", script: `chgrp slot02 /srv/vs/data/docs/_users/u1`},
		{name: "a user's tree with another slot's group, level full", full: true, script: `chgrp slot02 /srv/vs/data/docs/_users/u1`},
		{name: "service started before its groups", full: true, script: `gpasswd -d vs slot49 >/dev/null
			systemctl restart user@$(id -u vs).service; gpasswd -a vs slot49 >/dev/null`},
		{name: "an old release still running", full: true, script: `cd /srv/vs/releases; cp -a "$(readlink -f ../current)" old-aaaaaaaa-20200101000000
			pid=$(pgrep -u vs -x vs-workspace); ln -sfn releases/old-aaaaaaaa-20200101000000 ../current; chown -h vs:vs ../current; test -n "$pid"`,
			after: `cd /srv/vs/releases; ln -sfn "releases/$(ls | grep -v ^old | tail -1)" ../current; chown -h vs:vs ../current
			systemctl --user -M vs@ restart vs-workspace vs-agent; rm -r old-aaaaaaaa-20200101000000`},
	}
}

// TestS02EveryBreakageIsFoundAndItsFixHeals breaks the host in one way at a
// time. The golden table says for each which rows fail and with which fix; each
// fix is run as it is printed, and then no row fails.
func TestS02EveryBreakageIsFoundAndItsFixHeals(t *testing.T) {
	o := reference(t)
	if r := o.audit(t, "--level", "full"); r.Exit != 0 {
		t.Fatalf("the host is not healthy to begin with:\n%s", text(r))
	}
	var table strings.Builder
	for _, b := range breakages() {
		t.Run(b.name, func(t *testing.T) {
			level := "basic"
			if b.full {
				level = "full"
			}
			o.sh(t, b.script)
			before := o.everything(t)
			r := o.audit(t, "--level", level)
			unchanged(t, before, o.everything(t), "the audit of the broken host")
			fmt.Fprintf(&table, "%s (%s)\n", b.name, level)
			var fixes []report.Fix
			for _, row := range r.Rows {
				if row.State != report.Fail {
					continue
				}
				fix := "none"
				if row.Fix != nil {
					fix = row.Fix.Line()
					if len(row.Fix.Argv) > 0 && !slices.ContainsFunc(fixes, func(f report.Fix) bool { return slices.Equal(f.Argv, row.Fix.Argv) }) {
						fixes = append(fixes, *row.Fix)
					}
				}
				fmt.Fprintf(&table, "    %-36s %s\n", name(row), stable(o, fix))
			}
			if r.Exit != report.ExitState {
				t.Errorf("exit %d, want 1:\n%s", r.Exit, text(r))
			}
			for _, f := range fixes {
				o.apply(t, f)
			}
			healed := o.audit(t, "--level", level)
			fmt.Fprintf(&table, "    healed: %v\n", healed.Exit == 0)
			if healed.Exit != 0 {
				t.Errorf("after %v:\n%s\nbefore:\n%s", fixes, text(healed), text(r))
			}
			if b.after != "" {
				o.sh(t, b.after)
			}
		})
	}
	if r := o.audit(t, "--level", "full"); r.Exit != 0 {
		t.Errorf("the host is left broken:\n%s", text(r))
	}
	golden(t, "testdata/breakages.golden", table.String())
}

// stable takes out of a line what differs from run to run.
func stable(o operator, line string) string {
	words := strings.Fields(line)
	for i, w := range words {
		switch {
		case i > 0 && words[i-1] == "-inum":
			words[i] = "INODE"
		case strings.HasPrefix(w, "user@"):
			words[i] = "user@UID.service"
		case strings.Contains(w, "/releases/vs-"):
			before, rest, _ := strings.Cut(w, "/releases/vs-")
			_, after, _ := strings.Cut(rest, "/")
			words[i] = before + "/releases/ID/" + after
		}
	}
	return strings.Join(words, " ")
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; this run says:\n%s", file, got)
	}
}
