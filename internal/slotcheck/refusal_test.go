package slotcheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

const testLauncher = "/srv/vs/releases/r1/bin/video-studio-landlock-runner"

func refusalAudit() *audit {
	h := hosts.Host{Name: "lab", Product: "vs"}
	return &audit{ask: Ask{Host: h}, layout: h.Layout(), docs: "/srv/vs/data/docs", launcher: testLauncher, hide: newHider([]string{"u1"})}
}

// fixText is a fix as a person reads it.
func fixText(f *report.Fix) string {
	if f == nil {
		return ""
	}
	return strings.TrimSpace(strings.Join(f.Argv, " ") + " " + f.Note)
}

func TestS13B18RefusalsAreToldApart(t *testing.T) {
	healthy := newScratch(t)
	slot := subject{Slot: "slot01", Account: accounts.User{UID: 61001, GID: 61001}, Groups: []uint32{61001}, User: "u1"}
	tests := []struct {
		name   string
		exit   int
		stderr string
		detail string
		fix    string
	}{
		{"password", 1, "sudo: a password is required\n", "sudo: a password is required", "agentworks-deploy provision lab"},
		{"no rule", 1, "Sorry, user vs is not allowed to execute '/x' as slot01 on lab.\n", "Sorry, user vs is not allowed", "agentworks-deploy provision lab"},
		{"no account", 1, "sudo: unknown user slot01\nsudo: error initializing audit plugin sudoers_audit\n", "sudo: unknown user slot01", "agentworks-deploy provision lab"},
		{"no_new_privs", 1, "sudo: The \"no new privileges\" flag is set, which prevents sudo from running as root.\n", "no new privileges", "the caller runs with no_new_privs"},
		{"outside", 126, "slotctl: refused: working folder /d is outside the allowed folders\n", "outside the allowed folders", "agentworks-deploy provision lab"},
		{"full", 126, "slotctl: refused: slot01 already runs 32 commands at once (max_commands)\n", "already runs 32", "end commands of slot01"},
		{"releases", 127, "slotctl: cannot start " + testLauncher + ": /srv/vs/releases is not traversable for slot01\n",
			"/srv/vs/releases is not traversable for slot01", "chmod 0711 /srv/vs/releases"},
		{"another folder", 127, "slotctl: cannot start " + testLauncher + ": /srv/vs/releases/r1/bin is not traversable for slot01\n",
			"/srv/vs/releases/r1/bin is not traversable for slot01", "chmod o+x /srv/vs/releases/r1/bin"},
		{"launcher closed", 127, "slotctl: cannot start " + testLauncher + ": " + testLauncher + " is not executable\n",
			testLauncher + " is not executable", "chmod 0755 " + testLauncher},
		{"a component that is none", 127, "slotctl: cannot start " + testLauncher + ": /etc/shadow is not executable\n",
			"/etc/shadow is not executable", "agentworks-deploy deploy lab"},
		{"launcher refuses", 125, "SANDBOX_UNAVAILABLE: inspect Landlock path: stat /p: permission denied\n", "SANDBOX_UNAVAILABLE: inspect", "agentworks-deploy deploy lab"},
		{"skip line first", 125, "SANDBOX_GRANT_SKIPPED: /p is not accessible to this account; it is not granted\nSANDBOX_UNAVAILABLE: chdir /q: no\n",
			"SANDBOX_UNAVAILABLE: chdir /q: no", "agentworks-deploy deploy lab"},
		{"silent", 125, "", "it said nothing", "agentworks-deploy deploy lab"},
		{"user hidden", 125, "SANDBOX_UNAVAILABLE: chdir /srv/vs/data/docs/_users/u1/x: no (u1)\n", "_users/<user>/x: no (<user>)", "agentworks-deploy deploy lab"},
		{"the command's own exit 1", 1, "started\n", "started", "agentworks-deploy deploy lab"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := refusalAudit()
			a.sys = healthy.sys // its sudo
			r := a.explain(outcome{Exit: tt.exit, Stderr: tt.stderr}, "/srv/vs/slots/state/slot01", slot)
			if !strings.Contains(r.Detail, tt.detail) || strings.Contains(r.Detail, "u1") {
				t.Errorf("detail %q, want %q in it", r.Detail, tt.detail)
			}
			if got := fixText(r.Fix); !strings.HasPrefix(got, tt.fix) {
				t.Errorf("fix %q, want %q", got, tt.fix)
			}
			if r.Cause == "" || strings.Contains(r.Cause, "slot01") {
				t.Errorf("cause %q names one slot, or nothing", r.Cause)
			}
		})
	}
}

func TestS13SkippedLineMustNameTheGrant(t *testing.T) {
	const line = "SANDBOX_GRANT_SKIPPED: /srv/vs/state/p is not accessible to this account; it is not granted\n"
	for grant, want := range map[string]bool{"/srv/vs/state/p": true, "/srv/vs/state": false, "/srv/vs/state/pp": false} {
		if got := skipped("noise\n"+line, grant); got != want {
			t.Errorf("skipped(%s) = %v, want %v", grant, got, want)
		}
	}
	if got := trueError(line); got != "" {
		t.Errorf("trueError of a skip line alone = %q, want nothing", got)
	}
}

// TestS14OldSlotctlIsComputed: a slotctl that names no component leaves it to
// modes and ACLs, and the row says so.
func TestS14OldSlotctlIsComputed(t *testing.T) {
	app := t.TempDir()
	a := refusalAudit()
	a.ask.Host.Paths.App = app
	a.layout = a.ask.Host.Layout()
	bin := filepath.Join(a.layout.Releases(), "r1/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	a.launcher = filepath.Join(bin, hosts.LauncherName)
	if err := os.WriteFile(a.launcher, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for p := app; p != "/"; p = filepath.Dir(p) {
		if acc, err := readAccess(p); err != nil || acc.Mode&1 == 0 {
			if err := os.Chmod(p, 0o755); err != nil { // testing's own folders are 0700
				t.Fatal(err)
			}
		}
	}
	slot := subject{Slot: "slot01", Account: accounts.User{UID: 61001, GID: 61001}, Groups: []uint32{61001}}
	old := outcome{Exit: 127, Stderr: "slotctl: fork/exec " + a.launcher + ": permission denied\n"}

	if r := a.explain(old, "/", slot); !strings.Contains(r.Detail, "fork/exec") {
		t.Errorf("nothing refuses: %+v, want the old text", r)
	}
	for _, tt := range []struct {
		path string
		mode os.FileMode
		fix  string
	}{
		{a.layout.Releases(), 0o700, "chmod 0711 " + a.layout.Releases()},
		{bin, 0o750, "chmod o+x " + bin},
		{a.launcher, 0o700, "chmod 0755 " + a.launcher},
	} {
		if err := os.Chmod(tt.path, tt.mode); err != nil {
			t.Fatal(err)
		}
		r := a.explain(old, "/", slot)
		if !strings.HasPrefix(r.Detail, tt.path+" is not ") || !strings.Contains(r.Detail, "computed from modes and ACLs") || fixText(r.Fix) != tt.fix {
			t.Errorf("%s %o: %q, fix %q; want fix %q", tt.path, tt.mode, r.Detail, fixText(r.Fix), tt.fix)
		}
		if err := os.Chmod(tt.path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFixesOfALocalAuditCannotBeRunAsTheyStand(t *testing.T) {
	a := refusalAudit()
	a.ask.Local = true
	f := a.deployFix()
	if got := strings.Join(f.Argv, " "); got != "agentworks-deploy deploy <host>" || !strings.Contains(f.Note, "<host>") {
		t.Errorf("fix %q, note %q", got, f.Note)
	}
}

func TestFixWithControlBytesIsNoCommand(t *testing.T) {
	for _, name := range []string{"/a\nb", "/a\x1b[31m", "/a\xff", "/a\u200b"} {
		if f := hostFix("chmod", "o+x", name); f.Argv != nil || f.Note == "" {
			t.Errorf("%q: %+v, want a reason and no command", name, f)
		}
	}
	if f := hostFix("chmod", "o+x", "/a b'ü"); len(f.Argv) != 3 {
		t.Errorf("%+v: a name that can be shown and quoted is runnable", f)
	}
}

func FuzzExplain(f *testing.F) {
	f.Add(127, "slotctl: cannot start "+testLauncher+": /srv/vs is not traversable for slot01\n")
	f.Add(125, skippedLine+"/x is\n"+launcherLine+"u1")
	f.Add(1, "sudo: \n")
	f.Fuzz(func(t *testing.T, exit int, stderr string) {
		a := refusalAudit()
		s := subject{Slot: "slot01", Account: accounts.User{UID: 61001, GID: 61001}, User: "u1"}
		r := a.explain(outcome{Exit: exit, Stderr: stderr}, "/", s)
		if r.Detail == "" || r.Cause == "" || r.Fix == nil || (len(r.Fix.Argv) == 0 && r.Fix.Note == "") {
			t.Fatalf("%d %q: %+v", exit, stderr, r)
		}
		if line := trueError(stderr); strings.HasPrefix(line, skippedLine) || strings.ContainsAny(line, "\n") {
			t.Fatalf("%q: true error %q", stderr, line)
		}
	})
}
