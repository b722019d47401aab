package fleet_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentworks-deploy/internal/remote/ssmtest"
)

// rebuilt gives the seat programs of its own, of which the named ones are other
// builds than those in the lab: an ELF file may end in anything.
func rebuilt(t *testing.T, s *seat, names ...string) (sums map[string]string) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bin")
	must(t, "cp", "-r", s.bin, bin)
	sums = map[string]string{}
	for _, name := range names {
		path := filepath.Join(bin, name)
		program, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		program = append(program, bin...)
		if err := os.WriteFile(path, program, 0o755); err != nil {
			t.Fatal(err)
		}
		sums[name] = fmt.Sprintf("%x", sha256.Sum256(program))
	}
	s.bin = bin
	return sums
}

const libexec = "/usr/local/libexec/agentworks/"

// installed compares what stands in LIBEXEC with sums and looks for leftovers.
func installed(t *testing.T, s *seat, sums map[string]string) {
	t.Helper()
	for name, want := range sums {
		if got := s.lab.MustExec(t, "sha256sum", libexec+name); !strings.HasPrefix(got, want) {
			t.Errorf("%s is another one", name)
		}
	}
	if left, _, code := s.lab.Exec(t, "ls", "-A", "/var/lib/agentworks-deploy"); code == 0 {
		t.Errorf("left in root's folder: %s", left)
	}
}

// The whole program does not fit into commands; the service account's channel
// carries it, and what that account puts there is not believed.
func TestProvisionOverSSMThroughTheService(t *testing.T) {
	s := takeSeat(t, ready(t).lab)
	sums := rebuilt(t, s, "agentworks-deploy", "slotctl")
	s.host(t, "over-ssm", ssmByID, sshVs)
	half := "/srv/vs/.deploy/" + sums["agentworks-deploy"]
	asVs := func(script string) {
		if _, said, code := s.lab.ExecAs(t, "vs", "/bin/sh", "-c", "mkdir -p -m 0700 /srv/vs/.deploy; "+script); code != 0 {
			t.Fatal(said)
		}
	}
	for name, plant := range map[string]string{
		"another program":   "printf '#!/bin/sh\\ntouch /root/planted\\n' >" + half + "; chmod 755 " + half,
		"a link to a file":  "ln -sf /etc/shadow " + half,
		"a link to a pipe":  "mkfifo /tmp/planted-pipe; ln -sf /tmp/planted-pipe " + half,
		"the folder's link": "rm -rf /srv/vs/.deploy; mkdir -m 0700 /srv/vs/home/elsewhere; ln -s /srv/vs/home/elsewhere /srv/vs/.deploy",
	} {
		asVs(plant)
		stdout, stderr, code := s.run(t, "provision", "over-ssm", "--plan")
		if code != 0 {
			t.Errorf("%s: plan: exit %d\n%s%s", name, code, stdout, stderr)
		}
		if _, _, code := s.lab.Exec(t, "test", "-e", "/root/planted"); code == 0 {
			t.Fatalf("%s was run as root", name)
		}
		asVs("rm -rf /srv/vs/.deploy /srv/vs/home/elsewhere /tmp/planted-pipe")
	}
	stdout, stderr, code := s.run(t, "provision", "over-ssm")
	if code != 0 || !strings.Contains(stderr, "sent over ssh vs@thelab") || !strings.Contains(stdout, "CHANGED  programs") {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	installed(t, s, sums)
	if left, _, _ := s.lab.Exec(t, "ls", "-A", "/srv/vs/.deploy"); left != "" {
		t.Errorf("left with the service account: %s", left)
	}
	sent := len(s.ssm.Scripts())
	if stdout, stderr, code := s.run(t, "provision", "over-ssm"); code != 0 || strings.Contains(stdout, "CHANGED") || strings.Contains(stderr, "sent over") {
		t.Errorf("again: exit %d\n%s%s", code, stdout, stderr)
	}
	if n := len(s.ssm.Scripts()) - sent; n != 1 {
		t.Errorf("%d commands for a provision with nothing to do", n)
	}
}

// Without a stream anywhere what is small goes in pieces, and what is not is
// refused with all the ways that there would be.
func TestProvisionOverSSMAlone(t *testing.T) {
	s := takeSeat(t, ready(t).lab)
	s.host(t, "alone", ssmByID, ssmByID)
	if _, stderr, code := s.run(t, "provision", "alone"); code != 0 { // the half comes from the release
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	sums := rebuilt(t, s, "slotctl")
	stdout, stderr, code := s.run(t, "provision", "alone")
	if code != 0 || !strings.Contains(stderr, "slotctl: goes in pieces, ") {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	t.Log(stderr)
	installed(t, s, sums)

	rebuilt(t, s, "agentworks-deploy")
	_, stderr, code = s.run(t, "provision", "alone")
	for _, want := range []string{"no way to get it there worked", "the service channel has no stream either", "channels.admin.ssm.bucket is not set", "more than 400 commands"} {
		if code != 3 || !strings.Contains(stderr, want) {
			t.Errorf("exit %d, no %q\n%s", code, want, stderr)
		}
	}
}

// Root does not open what the service account names: a link of that account leads
// no further than the account itself could go.
func TestRootReadsNothingThatTheServiceMayNot(t *testing.T) {
	s := takeSeat(t, ready(t).lab)
	s.host(t, "alone", ssmByID, ssmByID)
	if _, stderr, code := s.run(t, "provision", "alone"); code != 0 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	sums := rebuilt(t, s, "slotctl")
	s.lab.CopyIn(t, s.bin+"/slotctl", "/root/slotctl", 0o600)
	defer s.lab.MustExec(t, "rm", "-f", "/root/slotctl")
	for _, link := range []string{"/srv/vs/.deploy/" + sums["slotctl"], "/srv/vs/releases/planted/bin/slotctl"} {
		if _, said, code := s.lab.ExecAs(t, "vs", "/bin/sh", "-c", `mkdir -p "${0%/*}" && ln -s /root/slotctl "$0"`, link); code != 0 {
			t.Fatal(said)
		}
	}
	defer s.lab.MustExec(t, "rm", "-rf", "/srv/vs/.deploy", "/srv/vs/releases/planted")
	_, stderr, code := s.run(t, "provision", "alone")
	if code != 0 || !strings.Contains(stderr, "slotctl: goes in pieces, ") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	installed(t, s, sums)
}

// Five hundred slots are a long answer: it comes in pages and is complete.
func TestB49FiveHundredSlots(t *testing.T) {
	s := takeSeat(t, ready(t).lab)
	table := `{"slots":{`
	for n := 1; n <= 500; n++ {
		table += fmt.Sprintf("%q:%q,", fmt.Sprintf("slot%02d", n), fmt.Sprintf("%x", sha256.Sum256([]byte{byte(n), byte(n >> 8)})))
	}
	before := s.lab.ReadFile(t, "/etc/agentworks/slots.json")
	s.lab.WriteFile(t, "/etc/agentworks/slots.json", strings.TrimSuffix(table, ",")+"}}", 0o640)
	defer s.lab.WriteFile(t, "/etc/agentworks/slots.json", before, 0o640)
	for name, channel := range map[string]string{"over-ssm": ssmByID, "over-ssh": sshRoot} {
		s.host(t, name, channel, sshVs)
	}
	want, _, wantCode := s.run(t, "slots", "status", "over-ssh", "--set", "slots.count=500", "--format", "json")
	got, stderr, code := s.run(t, "slots", "status", "over-ssm", "--set", "slots.count=500", "--format", "json")
	if strings.ReplaceAll(got, "over-ssm", "over-ssh") != want || code != wantCode || strings.Count(got, `"slot500"`) < 1 {
		t.Errorf("over SSM: exit %d (over ssh %d), %d bytes (%d)\n%s", code, wantCode, len(got), len(want), stderr)
	}
	pages := 0
	for _, script := range s.ssm.Scripts() {
		if strings.Contains(script, "tail -c") {
			pages++
		}
	}
	if pages < 2 {
		t.Errorf("%d pages for %d bytes", pages, len(got))
	}
	for name, spoil := range map[string]func(string) string{
		"cut":     func(out string) string { return out[:max(len(out)-1, 0)] },
		"altered": func(out string) string { return strings.Replace(out, "a", "b", 1) },
	} {
		s.ssm.Play(ssmtest.Faults{Stdout: func(_, out string) string {
			if strings.Contains(out, "agentworks-deploy-kept") {
				return out
			}
			return spoil(out)
		}})
		stdout, stderr, code := s.run(t, "slots", "status", "over-ssm", "--set", "slots.count=500")
		if code != 3 || stdout != "" {
			t.Errorf("%s page: exit %d\n%s%s", name, code, stdout, stderr)
		}
	}
	if left, _, _ := s.lab.Exec(t, "find", "/run/agentworks-deploy/answers", "!", "-perm", "700", "!", "-perm", "600"); left != "" {
		t.Errorf("open to others: %s", left)
	}
}
