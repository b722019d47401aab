package slotcheck_test

import (
	"slices"
	"strings"
	"testing"

	"agentworks-deploy/internal/lab/labtest"
	"agentworks-deploy/internal/report"
)

// TestS07NoIdentityInAnyOutput: on a healthy host and on broken ones, in every
// format and on standard error, no user id and no secret.
func TestS07NoIdentityInAnyOutput(t *testing.T) {
	o := reference(t)
	const id = "u-secret-1"
	tree := "/srv/vs/data/docs/_users/" + id
	o.must(t, "slots", "assign", "lab", id, "slot03")
	o.sh(t, `cd `+tree+`; mkdir -p Chats/Work/projects/p Chats/Code/projects/`+id+`; chown -R vs:slot03 .; chmod -R u+rwX,g+rwXs,o-rwx .`)
	defer func() {
		o.must(t, "slots", "release", "lab", id)
		o.sh(t, `rm -r `+tree)
	}()
	for what, script := range map[string][2]string{
		"healthy":               {":", ":"},
		"the tree is another's": {"chgrp slot02 " + tree, "chgrp slot03 " + tree},
		"a project is closed":   {"chmod 0700 " + tree + "/Chats/Work/projects/p", "chmod 2770 " + tree + "/Chats/Work/projects/p"},
		"the table has him twice": {`sed 's/"slot01"/"slot04":"` + id + `","slot01"/' /etc/agentworks/slots.json >/root/t; cp -p /etc/agentworks/slots.json /root/slots.json; cat /root/t >/etc/agentworks/slots.json`,
			`cp -p /root/slots.json /etc/agentworks/slots.json`},
		"releases are closed": {"chmod 0700 /srv/vs/releases", "chmod 0711 /srv/vs/releases"},
	} {
		t.Run(what, func(t *testing.T) {
			o.sh(t, script[0])
			defer o.sh(t, script[1])
			for _, format := range report.Formats() {
				level := "basic"
				if format == "json" || format == "table" {
					level = "full"
				}
				stdout, stderr, code := o.run(t, "slotcheck", "lab", "--level", level, "--format", format)
				if healthy := what == "healthy"; healthy != (code == 0) {
					t.Errorf("%s: exit %d\n%s", format, code, stdout)
				}
				for _, secret := range []string{"u-secret", "canary-"} {
					if strings.Contains(stdout+stderr, secret) {
						t.Errorf("%s tells %s:\n%s%s", format, secret, stdout, stderr)
					}
				}
				if strings.Contains(stdout+stderr, "\x1b") && format != "html" {
					t.Errorf("%s holds control bytes", format)
				}
			}
		})
	}
}

// TestS11WhatTheServiceRunsWithCounts: the process, then the file, and never the
// file where the process cannot be read.
func TestS11WhatTheServiceRunsWithCounts(t *testing.T) {
	o := reference(t)
	t.Run("the process says one thing and the file another", func(t *testing.T) {
		o.sh(t, `echo AGENTWORKS_SLOTS=off >>/srv/vs/.env`)
		defer o.sh(t, `sed -i '$d' /srv/vs/.env`)
		if r := o.audit(t); r.Exit != 0 || r.Summary.Passed != 21 {
			t.Errorf("exit %d:\n%s", r.Exit, text(r))
		}
	})
	t.Run("not running", func(t *testing.T) {
		o.sh(t, `systemctl --user -M vs@ stop vs-workspace; sed -i 's/$/\r/' /srv/vs/.env`)
		defer o.sh(t, `sed -i 's/\r$//' /srv/vs/.env; systemctl --user -M vs@ start vs-workspace`)
		r := o.audit(t)
		if r.Exit != 0 || r.Summary.Passed != 21 || !slices.Contains(of(r, report.Info), "settings") {
			t.Errorf("exit %d:\n%s", r.Exit, text(r))
		}
	})
	t.Run("running and unreadable", func(t *testing.T) {
		o.sh(t, `cat >/etc/systemd/system/vs-workspace.service <<END
[Service]
ExecStart=/bin/sleep infinity
END
systemctl start vs-workspace.service`)
		defer o.sh(t, `systemctl stop vs-workspace.service; rm /etc/systemd/system/vs-workspace.service; systemctl daemon-reload`)
		r := o.audit(t, "--set", "release.manager=system")
		if r.Exit != report.ExitUnfinished || !slices.Equal(of(r, report.Error), []string{"settings"}) || len(of(r, report.Pass, report.Fail)) > 0 {
			t.Errorf("exit %d:\n%s", r.Exit, text(r))
		}
	})
}

func TestS09NobodyRunsInAnothersFolder(t *testing.T) {
	o := reference(t)
	o.sh(t, `mv /srv/vs/data/docs/_users/u2/Chats/Code /root/code`)
	defer o.sh(t, `mv /root/code /srv/vs/data/docs/_users/u2/Chats/Code`)
	if r := o.audit(t); r.Exit != 0 || !slices.Equal(of(r, report.Skip), []string{"pwd-code-project [slot02]"}) {
		t.Errorf("no Code project: exit %d\n%s", r.Exit, text(r))
	}
	// A link to somebody else's folder is no folder.
	o.sh(t, `runuser -u vs -- ln -s ../../u1/Chats/Code /srv/vs/data/docs/_users/u2/Chats/Code`)
	defer o.sh(t, `rm /srv/vs/data/docs/_users/u2/Chats/Code`)
	if r := o.audit(t); r.Exit != 0 || !slices.Equal(of(r, report.Skip), []string{"pwd-code-project [slot02]"}) {
		t.Errorf("a link: exit %d\n%s", r.Exit, text(r))
	}
}

// TestLocalOnTheServerItself runs the program on the host, as root and as the
// service account: the same rows, and fixes that keep the word <host>.
func TestLocalOnTheServerItself(t *testing.T) {
	o := reference(t)
	want := o.audit(t)
	argv := []string{"/srv/vs/current/bin/agentworks-deploy", "slotcheck", "--local", "--product", "vs", "--app", "/srv/vs", "--docs", "/srv/vs/data/docs"}
	for _, user := range []string{"root", "vs"} {
		stdout, stderr, code := o.Run(t, labtest.Cmd{User: user, Argv: argv, Env: []string{"PATH=/usr/bin:/bin"}})
		if code != 0 || strings.Count(stdout, "\nPASS ") != want.Summary.Passed {
			t.Errorf("as %s: exit %d\n%s%s", user, code, stdout, stderr)
		}
	}
	o.sh(t, `rm `+libexec+`/slotctl.json`)
	defer o.must(t, "provision", "lab")
	stdout, stderr, code := o.Run(t, labtest.Cmd{User: "vs", Argv: argv, Env: []string{"PATH=/usr/bin:/bin"}})
	if code != 1 || !strings.Contains(stdout, "-- fix: agentworks-deploy provision '<host>' (not runnable as it stands: ") {
		t.Errorf("broken: exit %d\n%s%s", code, stdout, stderr)
	}
}

// TestWrongWords end with 2 and touch no host.
func TestWrongWords(t *testing.T) {
	o := operator{bin: labtest.Binaries(t), hosts: "../../hosts"}
	for _, args := range [][]string{
		{"slotcheck"},
		{"slotcheck", "nohost"},
		{"slotcheck", "lab", "--level", "deep"},
		{"slotcheck", "lab", "--format", "xml"},
		{"slotcheck", "lab", "--product", "vs"},
		{"slotcheck", "lab", "--local", "--product", "vs"},
		{"slotcheck", "--local"},
		{"slotcheck", "--local", "--product", "../vs"},
		{"slotcheck", "--local", "--product", "vs", "--app", "srv"},
		{"slotcheck", "lab", "lab"},
	} {
		stdout, stderr, code := o.runOn(t, "slotcheck-none", args...)
		if code != report.ExitUsage || stdout != "" || stderr == "" {
			t.Errorf("%q: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
	if stdout, stderr, code := o.runOn(t, "slotcheck-none", "slotcheck", "lab"); code != report.ExitUnfinished || stdout != "" || !strings.Contains(stderr, "lab up") {
		t.Errorf("lab not up: exit %d\n%s%s", code, stdout, stderr)
	}
}

// TestASlotctlThatHangsIsNoVerdict: each slot is waited for once, 30 s, and its
// rows are ERROR; the host's own rows stand.
func TestASlotctlThatHangsIsNoVerdict(t *testing.T) {
	t.Parallel() // it waits for the real deadline, on a lab of its own
	l := labtest.New(t, labtest.Reference())
	o := operator{Lab: l, bin: labtest.Binaries(t), hosts: "../../hosts", host: "lab"}
	// No slot is assigned here, so nobody may have an account either.
	o.sh(t, `printf '{"users":[]}' >/srv/vs/data/docs/config/users.json`)
	o.must(t, "deploy", "lab", "--provision")
	o.sh(t, wrapSlotctl(`exec sleep 1000`))
	r := o.audit(t)
	if r.Exit != report.ExitUnfinished || r.Summary.NotChecked != 5 || r.Summary.Passed != 6 || r.Summary.Failed != 0 {
		t.Errorf("exit %d:\n%s", r.Exit, text(r))
	}
	if first := r.Rows[6]; !strings.Contains(first.Detail, "no answer within 30s") {
		t.Errorf("%+v", first)
	}
}
