package slotcheck_test

import (
	"slices"
	"strings"
	"testing"

	"agentworks-deploy/internal/lab/labtest"
	"agentworks-deploy/internal/report"
)

// wrong are the rows of a report that want something done, with their fixes.
func wrong(o operator, r report.Report) []string {
	var rows []string
	for _, row := range r.Rows {
		if row.State == report.Fail || row.State == report.Warn || row.State == report.Error {
			fix := "no fix"
			if row.Fix != nil && len(row.Fix.Argv) > 0 {
				fix = stable(o, row.Fix.Command())
			}
			rows = append(rows, string(row.State)+" "+name(row)+": "+fix)
		}
	}
	return rows
}

// state is everything that a fix could leave otherwise than it was; the account
// tools keep copies of their files.
func (o operator) state(t testing.TB) labtest.Snapshot {
	t.Helper()
	return o.Snapshot(t, "/srv", "/etc", "/usr/local", "/usr/bin/sudo", "/var/lib/systemd/linger").Without(func(path string) bool {
		return strings.HasPrefix(path, "/etc/") && strings.HasSuffix(path, "-")
	})
}

// heals breaks the host by a script and wants exactly these rows. Their fixes, run
// as they are printed and in that order, leave the host as it was before: nothing
// is left for slotcheck, provision or slots status to say.
func (o operator) heals(t *testing.T, level, script string, want ...string) {
	t.Helper()
	before := o.state(t)
	o.sh(t, script)
	r := o.audit(t, "--level", level)
	if got := wrong(o, r); !slices.Equal(got, want) {
		t.Errorf("the rows are\n%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), text(r))
	}
	var done [][]string
	for _, row := range r.Rows {
		if row.State == report.Pass || row.Fix == nil || len(row.Fix.Argv) == 0 || slices.ContainsFunc(done, func(d []string) bool { return slices.Equal(d, row.Fix.Argv) }) {
			continue
		}
		done = append(done, row.Fix.Argv)
		o.apply(t, *row.Fix)
	}
	if r := o.audit(t, "--level", "full", "--strict"); r.Exit != 0 {
		t.Errorf("after the fixes:\n%s", text(r))
	}
	if diff := before.Diff(o.state(t)); len(diff) > 0 {
		t.Errorf("the fixes leave:\n%s", strings.Join(diff, "\n"))
	}
	if plan := o.must(t, "provision", "lab", "--plan"); !strings.Contains(plan, "\nprovision: nothing to do") {
		t.Errorf("provision has something to do:\n%s", plan)
	}
	o.must(t, "slots", "status", "lab")
}

// releaseID is the stable name of the live one in fixes.
const releaseID = "/srv/vs/releases/ID"

func TestWhoeverCanWriteOnTheWayIsFound(t *testing.T) {
	o := reference(t)
	o.heals(t, "basic", `cd /srv/vs; chmod 0777 . current/. current/bin current/bin/video-studio-landlock-runner current/bin/vs-agent releases slots/home
chmod 1777 /etc/agentworks; chmod 0666 /etc/agentworks/slots.json.lock; chmod 0777 /usr/local /usr/local/libexec/agentworks/agentworks-deploy
setfacl -m u:slot02:rwx slots/run /usr/local/libexec; setfacl -m u:slot01:rw /etc/agentworks/slots.json; chown slot02 slots/state`,
		"FAIL slot-table-acl: setfacl -b /etc/agentworks/slots.json",
		"FAIL path-writable: chmod go-w /usr/local",
		"FAIL path-writable: setfacl -b /usr/local/libexec",
		"FAIL path-writable: chmod go-w /usr/local/libexec/agentworks/agentworks-deploy",
		"FAIL path-writable: chmod 0751 /etc/agentworks",
		"FAIL path-writable: chmod go-w /srv/vs",
		"FAIL path-writable: chmod 0711 /srv/vs/slots/home",
		"FAIL path-writable: chown vs /srv/vs/slots/state",
		"FAIL path-writable: setfacl -b /srv/vs/slots/run",
		"FAIL path-writable: chmod 0711 /srv/vs/releases",
		"FAIL path-writable: chmod 'go-w,o-r' "+releaseID+"/",
		"FAIL path-writable: chmod 'go-w,o-r' "+releaseID+"/bin",
		"FAIL path-writable: chmod 0755 "+releaseID+"/bin/video-studio-landlock-runner",
		"FAIL path-writable: chmod go-w "+releaseID+"/bin/vs-agent",
		"FAIL path-writable: chmod 0600 /etc/agentworks/slots.json.lock",
		"WARN releases-listable: no fix",
	)
}

// The documents and the units of the service are on the way as well: whoever
// replaces one of those runs as the service.
func TestWhoeverCanReplaceDocumentsOrUnitsIsFound(t *testing.T) {
	o := reference(t)
	o.heals(t, "basic", `cd /srv/vs; chmod o+w data/docs data home home/.config home/.config/systemd/user home/.config/systemd/user/vs-agent.service`,
		"FAIL path-writable: chmod go-w /srv/vs/data",
		"FAIL path-writable: chmod go-w /srv/vs/data/docs",
		"FAIL path-writable: chmod go-w /srv/vs/home",
		"FAIL path-writable: chmod go-w /srv/vs/home/.config",
		"FAIL path-writable: chmod go-w /srv/vs/home/.config/systemd/user",
		"FAIL path-writable: chmod go-w /srv/vs/home/.config/systemd/user/vs-agent.service",
	)
}

// What slotctl starts besides the launcher is not confined.
func TestAnotherProgramForSlotsIsFound(t *testing.T) {
	o := reference(t)
	for _, more := range []string{"/usr/bin/*", "/srv/vs/data/docs/*"} {
		o.heals(t, "basic", `sed -i 's#"allowed_exec": \[#&"`+more+`", #' /usr/local/libexec/agentworks/slotctl.json`,
			"FAIL slotctl-allowed-exec: agentworks-deploy provision "+"lab",
		)
	}
}

// A holder whose tree is gone cannot run anything.
func TestALostTreeIsFound(t *testing.T) {
	o := reference(t)
	o.sh(t, "mv /srv/vs/data/docs/_users/u1 /srv/vs/u1.away")
	r := o.audit(t, "--level", "full")
	o.sh(t, "mv /srv/vs/u1.away /srv/vs/data/docs/_users/u1")
	if got := wrong(o, r); !slices.Equal(got, []string{"FAIL trees-closed: no fix"}) || !strings.Contains(text(r), "slots status") || strings.Contains(text(r), "u1") {
		t.Errorf("%q\n%s", got, text(r))
	}
}

// What keeps the service itself from the release is named, and its own fix heals.
func TestAFolderClosedToTheServiceIsNamed(t *testing.T) {
	o := reference(t)
	o.sh(t, "chmod 0750 /srv")
	r := o.audit(t)
	if r.Exit != 1 || !strings.Contains(text(r), "FAIL slotctl-allowed-exec: /srv is not traversable for vs -- fix: chmod 'o+x' /srv") {
		t.Errorf("exit %d\n%s", r.Exit, text(r))
	}
	o.sh(t, "chmod o+x /srv")
	if r := o.audit(t); r.Exit != 0 {
		t.Errorf("after the fix:\n%s", text(r))
	}
	o.sh(t, "chmod 0755 /srv")
}

// A launcher that the kernel ends answered nothing.
func TestALauncherThatCannotRunIsNotReachable(t *testing.T) {
	o := reference(t)
	o.sh(t, `cd /srv/vs/current/bin; cp -p video-studio-landlock-runner /srv/vs/launcher.away
printf '#!/bin/sh\nkill -SEGV $$\n' >video-studio-landlock-runner`)
	r := o.audit(t)
	o.sh(t, "mv /srv/vs/launcher.away /srv/vs/current/bin/video-studio-landlock-runner")
	for _, row := range r.Rows {
		if row.Check == "runner-reachable" && (row.State != report.Fail || !strings.Contains(row.Detail, "signal 11")) {
			t.Errorf("%s %s", row.State, row.Detail)
		}
	}
	if r := o.audit(t); r.Exit != 0 {
		t.Errorf("after it is back:\n%s", text(r))
	}
}

// A link has no mode of its own.
func TestLinkedFolderOfSlotctlPasses(t *testing.T) {
	o := reference(t)
	o.sh(t, "mv /usr/local/libexec/agentworks /opt/aw && ln -s /opt/aw /usr/local/libexec/agentworks")
	r := o.audit(t, "--level", "full")
	o.sh(t, "rm /usr/local/libexec/agentworks && mv /opt/aw /usr/local/libexec/agentworks")
	if r.Exit != 0 {
		t.Error(text(r))
	}
}

// TestASlotHasWhatFormatsSays, and nothing else: an account, its folders, and
// those of the service that no slot may enter are compared with the page.
func TestASlotHasWhatFormatsSays(t *testing.T) {
	o := reference(t)
	o.heals(t, "full", `usermod -aG sudo slot01; usermod -aG slot02 slot30; usermod -aG slot31 nobody; usermod -s /bin/bash slot02
cd /srv/vs; chmod 0777 slots/home/slot01; chmod 2777 slots/state/slot01; chmod 0770 slots/run/slot01; chmod g-s slots/run/slot01
setfacl -m u:slot02:rwx state; setfacl -m u:slot02:rwx,d:u:slot02:rwx slots/state/slot31; chmod 0755 data/docs/config
setfacl -m u:slot02:r .env data/docs/config/users.json; chown slot02 slots/home/slot32`,
		"FAIL identity [slot01]: gpasswd -d slot01 sudo",
		"FAIL identity [slot02]: usermod -s /usr/sbin/nologin slot02",
		"FAIL identity [slot30]: gpasswd -d slot30 slot02",
		"WARN identity [slot31]: gpasswd -d nobody slot31",
		"FAIL slot-folders: setfacl -b /srv/vs/state",
		"FAIL slot-folders: chmod 0700 /srv/vs/data/docs/config",
		"FAIL slot-folders [slot01]: chmod 0700 /srv/vs/slots/home/slot01",
		"FAIL slot-folders [slot01]: chmod 2770 /srv/vs/slots/state/slot01",
		"FAIL slot-folders [slot01]: chmod 2770 /srv/vs/slots/run/slot01",
		"FAIL slot-folders [slot31]: setfacl -b /srv/vs/slots/state/slot31",
		"FAIL slot-folders [slot31]: setfacl -k /srv/vs/slots/state/slot31",
		"FAIL slot-folders [slot32]: chown slot32 /srv/vs/slots/home/slot32",
		"FAIL trees-closed: setfacl -b /srv/vs/.env",
		"FAIL trees-closed: setfacl -b /srv/vs/data/docs/config/users.json",
		"FAIL slot-hygiene [slot30]: gpasswd -d slot30 slot02",
		"FAIL slot-hygiene [slot32]: chown slot32 /srv/vs/slots/home/slot32",
	)
}

// TestFixesLeaveTheModesOfThePage: a bit less would let the row pass, and leave
// provision or slots status with something to say.
func TestFixesLeaveTheModesOfThePage(t *testing.T) {
	o := reference(t)
	const find = "find /srv/vs/data/docs/_users -mindepth 1 -maxdepth 1 -inum INODE -exec "
	t.Run("users closed", func(t *testing.T) {
		const fix = "chmod 0711 /srv/vs/data/docs/_users"
		o.heals(t, "basic", `chmod 0700 /srv/vs/data/docs/_users`, "FAIL pwd-crew-project [slot01]: "+fix, "FAIL pwd-code-project [slot01]: "+fix,
			"FAIL pwd-crew-project [slot02]: "+fix, "FAIL pwd-code-project [slot02]: "+fix)
	})
	t.Run("a tree closed", func(t *testing.T) {
		const fix = find + "chmod 2770 '{}' '+'"
		o.heals(t, "full", `chmod 0700 /srv/vs/data/docs/_users/u1`, "FAIL pwd-crew-project [slot01]: "+fix, "FAIL pwd-code-project [slot01]: "+fix, "FAIL trees-closed: "+fix)
	})
	t.Run("a tree with an ACL", func(t *testing.T) {
		o.heals(t, "full", `setfacl -m u:slot02:r-x /srv/vs/data/docs/_users/u1; chmod 0700 /srv/vs/data/docs/_users/u1`,
			"FAIL pwd-crew-project [slot01]: "+find+"setfacl -n -m m::rwx '{}' '+'", "FAIL pwd-code-project [slot01]: "+find+"setfacl -n -m m::rwx '{}' '+'",
			"FAIL trees-closed: "+find+"setfacl -b -m g::rwx '{}' '+'")
	})
	t.Run("a folder in a tree", func(t *testing.T) {
		const fix = "find /srv/vs/data/docs/_users -mindepth 2 -maxdepth 2 -inum INODE -exec chmod 'g+rwxs' '{}' '+'"
		o.heals(t, "basic", `chmod 0700 /srv/vs/data/docs/_users/u1/Chats`, "FAIL pwd-crew-project [slot01]: "+fix, "FAIL pwd-code-project [slot01]: "+fix)
	})
}

// TestServicesThatDoNotRunWarn: what a service answers is deploy's to judge; that
// it does not run, or would not after the next boot, is said here.
func TestServicesThatDoNotRunWarn(t *testing.T) {
	o := reference(t)
	const vs = "systemctl --user -M 'vs@' "
	o.sh(t, vs+`reenable vs-workspace`) // it writes the link in its own way
	o.heals(t, "full", vs+`stop vs-agent; `+vs+`disable vs-workspace; rm /var/lib/systemd/linger/vs`,
		"WARN services: "+vs+"enable vs-workspace.service", "WARN services: "+vs+"start vs-agent.service", "WARN services: loginctl enable-linger vs")
	t.Run("none at all", func(t *testing.T) {
		o.heals(t, "full", `systemctl stop user@$(id -u vs).service`, "WARN services: systemctl start 'user@UID.service'")
	})
	const units = "cd /srv/vs/home/.config/systemd/user; "
	t.Run("no unit file, which its manager does not know yet", func(t *testing.T) {
		o.sh(t, units+`mv vs-agent.service /root/`)
		defer o.sh(t, units+`mv /root/vs-agent.service .; `+vs+`daemon-reload`)
		for range 2 {
			if got := wrong(o, o.audit(t, "--level", "full")); !slices.Equal(got, []string{"WARN services: no fix"}) {
				t.Errorf("%q", got)
			}
			o.sh(t, vs+`daemon-reload`)
		}
	})
	t.Run("masked", func(t *testing.T) {
		o.sh(t, units+`mv vs-agent.service /root/; ln -s /dev/null vs-agent.service; `+vs+`daemon-reload`)
		defer o.sh(t, units+`rm -f vs-agent.service; mv /root/vs-agent.service .; `+vs+`daemon-reload`)
		if got := wrong(o, o.audit(t, "--level", "full")); !slices.Equal(got, []string{"WARN services: " + vs + "unmask vs-agent.service"}) {
			t.Errorf("%q", got)
		}
	})
}

// TestAServiceThatFailsIsAFailure, whether its manager has given up, waits, or has
// just started it once more.
func TestAServiceThatFailsIsAFailure(t *testing.T) {
	o := reference(t)
	const vs, dropin = "systemctl --user -M vs@ ", "/srv/vs/home/.config/systemd/user/vs-agent.service.d"
	defer o.sh(t, vs+`daemon-reload; `+vs+`reset-failed vs-agent; `+vs+`restart vs-agent`)
	defer o.sh(t, `rm -r `+dropin)
	for what, tt := range map[string]struct{ unit, until string }{
		"given up": {`ExecStart=/bin/false\nRestart=no`, vs + `is-failed vs-agent`},
		"waits":    {`ExecStart=/bin/false\nRestartSec=1000`, vs + `show vs-agent -p SubState | grep auto-restart`},
		// It crashes until the test lets it run.
		"again and again": {`ExecStart=/bin/sh -c "[ -e /srv/vs/logs/stay ] || exit 1; exec sleep 1000"\nRestartSec=0\n[Unit]\nStartLimitIntervalSec=0`,
			`[ "$(` + vs + `show vs-agent -p NRestarts --value)" -gt 2 ] && touch /srv/vs/logs/stay && [ "$(` + vs + `show vs-agent -p SubState --value)" = running ]`},
	} {
		t.Run(what, func(t *testing.T) {
			defer o.sh(t, `rm -f /srv/vs/logs/stay`)
			o.sh(t, `mkdir -p `+dropin+`; printf '[Service]\nExecStart=\n`+tt.unit+`\n' >`+dropin+`/x.conf
`+vs+`daemon-reload; `+vs+`reset-failed vs-agent || :; `+vs+`restart vs-agent || :
for i in $(seq 200); do if `+tt.until+` >/dev/null; then exit 0; fi; sleep 0.05; done; exit 1`)
			r := o.audit(t, "--level", "full")
			if r.Exit != report.ExitState || !slices.Contains(of(r, report.Fail), "services") {
				t.Errorf("exit %d:\n%s", r.Exit, text(r))
			}
			for _, row := range r.Rows {
				if row.Check == "services" && (!strings.Contains(row.Fix.Note, "journalctl") || !strings.Contains(row.Fix.Note, "deploy lab")) {
					t.Errorf("%+v", row.Fix)
				}
			}
		})
	}
}

// TestSlotsAboveTheCountAreNone: a host with fewer slots than before keeps the
// accounts, and is healthy; one of them that is held is a person's to decide.
func TestSlotsAboveTheCountAreNone(t *testing.T) {
	t.Parallel() // on a lab of its own
	o := operator{Lab: labtest.New(t, labtest.Reference()), bin: labtest.Binaries(t), hosts: "../../hosts", host: "lab"}
	o.must(t, "provision", "lab", "--set", "slots.count=7")
	for _, u := range []string{"u1", "u2"} {
		o.must(t, "slots", "assign", "lab", u, "--set", "slots.count=7")
	}
	five := []string{"--set", "slots.count=5"}
	o.must(t, append([]string{"provision", "lab"}, five...)...)
	if out := o.must(t, append([]string{"deploy", "lab"}, five...)...); !strings.Contains(out, "INFO slot-accounts slot06, slot07: above slots.count, which is 5") {
		t.Errorf("deploy says\n%s", out)
	}
	o.sh(t, `runuser -u slot07 -- touch /srv/vs/slots/home/slot07/left; loginctl enable-linger slot06`)
	r := o.audit(t, append([]string{"--level", "full"}, five...)...)
	if r.Exit != 0 || strings.Count(text(r), "slot06") != 1 || strings.Count(text(r), "slot07") != 1 || !strings.Contains(text(r), "test slot slot05") {
		t.Errorf("exit %d:\n%s", r.Exit, text(r))
	}
	o.sh(t, `sed -i 's/"slot02"/"slot07"/' /etc/agentworks/slots.json; chgrp slot07 /srv/vs/data/docs/_users/u2`)
	r = o.audit(t, append([]string{"--level", "basic"}, five...)...)
	if got := wrong(o, r); !slices.Equal(got, []string{"FAIL slot-account [slot07]: no fix"}) || !strings.Contains(text(r), "agentworks-deploy slots release lab for who holds slot07") ||
		!strings.Contains(text(r), "raise slots.count and agentworks-deploy provision lab") {
		t.Errorf("%q\n%s", got, text(r))
	}
}

// TestASudoThatDoesNotWorkHasItsOwnFix: its rule is in place, so provisioning would do nothing.
func TestASudoThatDoesNotWorkHasItsOwnFix(t *testing.T) {
	o := reference(t)
	for script, fix := range map[string]string{
		"chown vs /usr/bin/sudo":       `sh -c 'chown root:root "$1" && chmod 4755 "$1"' sudo /usr/bin/sudo`,
		"chmod o+w,g+w /etc/sudoers.d": "chmod go-w /etc/sudoers.d",
	} {
		t.Run(script, func(t *testing.T) {
			var want []string
			for _, slot := range []string{"slot01", "slot02", "slot50"} {
				for _, check := range []string{"runner-reachable", "pwd-docs-root", "pwd-workflow", "pwd-crew-project", "pwd-code-project"} {
					want = append(want, "FAIL "+check+" ["+slot+"]: "+fix)
				}
			}
			o.heals(t, "basic", script, want...)
		})
	}
	t.Run("level full", func(t *testing.T) {
		o.sh(t, `chmod u-s /usr/bin/sudo`)
		defer o.sh(t, `chmod 4755 /usr/bin/sudo`)
		stdout, _, code := o.run(t, "slotcheck", "lab", "--level", "full")
		if code != 1 || strings.Contains(stdout, "provision lab") || !strings.Contains(stdout, "\nCAUSE sudo itself does not work: ") ||
			!strings.Contains(stdout, "of 50 slots -- fix: chmod 4755 /usr/bin/sudo\n") {
			t.Errorf("exit %d:\n%s", code, stdout)
		}
	})
}
