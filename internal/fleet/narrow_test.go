package fleet_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentworks-deploy/internal/remote/ssmtest"
)

// random is a release of the sample's with so many bytes that pack badly.
func (o operator) random(t *testing.T, size int) string {
	t.Helper()
	dir := o.release(t, rand.Text())
	noise := make([]byte, size)
	_, _ = rand.Read(noise) // never fails
	if err := os.WriteFile(filepath.Join(dir, "frontend/noise"), noise, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// leftovers fails the test where a delivery left something behind.
func (s *seat) leftovers(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"/srv/vs/.deploy", "/var/lib/agentworks-deploy"} {
		if left, _, code := s.lab.Exec(t, "ls", "-A", dir); code == 0 && left != "" {
			t.Errorf("left in %s: %s", dir, left)
		}
	}
	if now, _ := s.s3.Objects(); len(now) > 0 {
		t.Errorf("left in the bucket: %v", now)
	}
	if left, _ := filepath.Glob(filepath.Join(s.tmp, "agentworks-deploy-*")); len(left) > 0 {
		t.Errorf("left here: %v", left)
	}
}

// A host that only SSM leads to gets its releases as well: what is small in
// pieces, the rest through the bucket.
func TestDeployOverSSMAlone(t *testing.T) {
	o := ready(t)
	s := takeSeat(t, o.lab)
	s.host(t, "alone", ssmByID, ssmByID)
	s.host(t, "bucket", ssmBucket, ssmBucket)
	if _, stderr, code := s.run(t, "provision", "alone"); code != 0 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	before := o.current(t)

	large := o.random(t, 4<<20)
	stdout, stderr, code := s.run(t, "deploy", "alone", "--plan", "--release", large)
	if code != 0 || !strings.Contains(stdout, "PLANNED  current") {
		t.Errorf("plan: exit %d\n%s%s", code, stdout, stderr)
	}
	s.leftovers(t)
	_, stderr, code = s.run(t, "deploy", "alone", "--release", large)
	for _, want := range []string{"alone has no release yet, and no way to get it there worked", "channels.service.ssm.bucket is not set", "more than 400 commands"} {
		if code != 3 || !strings.Contains(stderr, want) {
			t.Errorf("too large: exit %d, no %q\n%s", code, want, stderr)
		}
	}
	if now := o.current(t); now != before {
		t.Errorf("%s is live after a refusal, before it was %s", now, before)
	}
	s.leftovers(t)

	for host, small := range map[string]string{"alone": o.release(t, "in pieces"), "bucket": large} {
		stdout, stderr, code := s.run(t, "deploy", host, "--release", small)
		if code != 0 || !strings.Contains(stdout, "slot self-test: ") || !strings.Contains(stderr, map[string]string{"alone": "release: goes in pieces, ", "bucket": "release: in the bucket"}[host]) {
			t.Errorf("%s: exit %d\n%s%s", host, code, stdout, stderr)
		}
		page, err := os.ReadFile(filepath.Join(small, "frontend/index.html"))
		if err != nil {
			t.Fatal(err)
		}
		if got := o.lab.ReadFile(t, "/srv/vs/current/frontend/index.html"); got != string(page) {
			t.Errorf("%s: %q is live", host, got)
		}
		if got := o.lab.MustExec(t, "stat", "-c", "%U:%G %a", "/srv/vs/current/frontend/index.html"); got != "vs:vs 644" {
			t.Errorf("%s: %s", host, got)
		}
		s.leftovers(t)
	}
}

// What provision installs comes through the bucket, is judged on the host, and is
// gone from the bucket afterwards.
func TestProvisionThroughTheBucket(t *testing.T) {
	s := takeSeat(t, ready(t).lab)
	s.host(t, "bucket", ssmBucket, ssmByID)
	sums := rebuilt(t, s, "agentworks-deploy", "slotctl")
	stdout, stderr, code := s.run(t, "provision", "bucket")
	_, taken := s.s3.Objects()
	if code != 0 || !strings.Contains(stdout, "CHANGED  programs") || len(taken) != 2 {
		t.Fatalf("exit %d, %d objects\n%s%s", code, len(taken), stdout, stderr)
	}
	installed(t, s, sums)
	s.leftovers(t)

	rebuilt(t, s, "agentworks-deploy")
	s.s3.Deny()
	if _, stderr, code := s.run(t, "provision", "bucket"); code != 3 || !strings.Contains(stderr, "403 Forbidden") || strings.Contains(stderr, "X-Amz") {
		t.Errorf("refused by S3: exit %d\n%s", code, stderr)
	}
	installed(t, s, sums)
}

// Of two deploys at once neither takes the other's files: both are right, or one
// says that the other is at work.
func TestTwoDeliveriesAtOnce(t *testing.T) {
	o := ready(t)
	s := takeSeat(t, o.lab)
	s.host(t, "alone", ssmByID, ssmByID)
	s.host(t, "bucket", ssmBucket, ssmBucket)
	if _, stderr, code := s.run(t, "provision", "alone"); code != 0 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	one, other := o.random(t, 100<<10), o.random(t, 100<<10)
	for _, pair := range [][4]string{{"alone", one, "alone", other}, {"alone", o.random(t, 50<<10), "bucket", o.random(t, 50<<10)}, {"bucket", other, "bucket", other}} {
		type ended struct {
			stderr string
			code   int
		}
		done := make(chan ended)
		for i := 0; i < len(pair); i += 2 {
			go func() {
				_, stderr, code := s.run(t, "deploy", pair[i], "--release", pair[i+1])
				done <- ended{stderr, code}
			}()
		}
		live := 0
		for range 2 {
			switch e := <-done; {
			case e.code == 0:
				live++
			case e.code != 4 || !strings.Contains(e.stderr, "another "):
				t.Errorf("%q: exit %d\n%s", pair, e.code, e.stderr)
			}
		}
		if live == 0 {
			t.Errorf("%q: neither is live", pair)
		}
	}
	if now, _ := s.s3.Objects(); len(now) > 0 {
		t.Errorf("left in the bucket: %v", now)
	}
}

// What a killed run was about to send is gone with it.
func TestKilledDeliveryLeavesNothingHere(t *testing.T) {
	o := ready(t)
	s := takeSeat(t, o.lab)
	s.host(t, "alone", ssmByID, ssmByID)
	s.ssm.Play(ssmtest.Faults{Stay: map[string]bool{instance: true}})
	cmd := s.command(context.Background(), "deploy", "alone", "--release", o.release(t, "killed"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, 20*time.Second, "the command is sent", func() bool { return s.ssm.Calls("SendCommand") > 0 })
	_ = cmd.Process.Kill() // it may have ended by itself
	_ = cmd.Wait()
	s.leftovers(t)
}

// A command's output and exit code come back whole, at its end.
func TestSandboxRunOverSSM(t *testing.T) {
	o := ready(t)
	s := takeSeat(t, o.lab)
	s.host(t, "alone", ssmByID, ssmByID)
	run := func(script string) (stdout, stderr string, code int) {
		return s.run(t, "sandbox", "run", "alone", "--slot", "slot01", "--dir", crew, "--", "sh", "-c", script)
	}
	for _, tt := range []struct {
		script, stdout, stderr string
		code                   int
	}{
		{"id -un; echo no >&2; exit 9", "slot01\n", "no\n", 9},
		{"printf 'a\\000\\377b'", "a\x00\xffb", "", 0},
		{"head -c 300000 /dev/zero | tr '\\0' x", strings.Repeat("x", 300_000), "", 0},
		{"cat /srv/vs/.env", "", "Permission denied", 1},
		{"kill -9 $$", "", "", 137},
		{"head -c 60000 /dev/urandom | od -An -v -tx1 | tr -d ' \\n' | wc -c", "120000\n", "", 0},
	} {
		stdout, stderr, code := run(tt.script)
		if stdout != tt.stdout || code != tt.code || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%q: exit %d, %d bytes %.60q, %q", tt.script, code, len(stdout), stdout, stderr)
		}
	}
	if stdout, stderr, code := run("head -c 60000 /dev/urandom"); len(stdout) != 60_000 || code != 0 {
		t.Errorf("in pages: %d bytes, exit %d, %s", len(stdout), code, stderr)
	}
	if _, stderr, code := run("exec cat /dev/zero"); code != 125 || !strings.Contains(stderr, "printed more than 4 MiB") {
		t.Errorf("endless: exit %d, %s", code, stderr)
	}
}

// A host with an admin channel alone has the service's verbs as well: root
// becomes the service account, with its groups and nothing of root's (case B55).
func TestB55AdminChannelAlone(t *testing.T) {
	o := ready(t)
	s := takeSeat(t, o.lab)
	for name, admin := range map[string]string{
		"ssm":      ssmByID,
		"ssh":      sshRoot,
		"fleet":    "{ssm: {region: " + region + ", targets: {tag: Name=thelab}}}",
		"ssh-user": "{ssh: {host: thelab-root}}",
		"not-root": sshVs,
	} {
		s.host(t, name, admin, "")
		file := filepath.Join(s.dir, "hosts", name+".yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, strings.Replace(string(text), "  service: \n", "", 1), 0o644)
	}
	config, err := os.ReadFile(s.dir + "/.ssh/config")
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.dir+"/.ssh/config", string(config)+"Host thelab-root\n\tHostName "+labAddress+"\n\tPort 2222\n\tUser root\n\tIdentityFile "+s.dir+"/key\n", 0o600)
	for _, name := range []string{"ssm", "ssh", "ssh-user", "fleet"} {
		stdout, stderr, code := s.run(t, "slotcheck", name)
		if code != 0 || !strings.Contains(stdout, " passed, 0 failed") {
			t.Errorf("slotcheck %s: exit %d\n%s%s", name, code, stdout, stderr)
		}
		if name == "fleet" {
			continue
		}
		if stdout, stderr, code := s.run(t, "deploy", name, "--release", o.release(t, "over "+name)); code != 0 {
			t.Errorf("deploy %s: exit %d\n%s%s", name, code, stdout, stderr)
		}
		if got := o.lab.MustExec(t, "stat", "-c", "%U:%G", "/srv/vs/current/frontend/index.html"); got != "vs:vs" {
			t.Errorf("%s: made by %s", name, got)
		}
	}
	for _, tt := range []struct {
		args, want string
		code       int
	}{
		{"slotcheck not-root", "not root: this host has no service channel", 2},
		{"provision not-root --plan", "/var/lib/agentworks-deploy cannot be made): does the admin channel come in as root?", 1},
		{"slotcheck ssm --set product=nobody-else", "is not provisioned: root cannot become the service account", 1},
		{"slotcheck ssh --set product=nobody-else", "is not provisioned: root cannot become the service account", 1},
	} {
		if stdout, stderr, code := s.run(t, strings.Fields(tt.args)...); code != tt.code || !strings.Contains(stdout+stderr, tt.want) {
			t.Errorf("%s: exit %d, no %q\n%s%s", tt.args, code, tt.want, stdout, stderr)
		}
	}
	// Nothing of root's is left, its folder included.
	for _, name := range []string{"ssm", "ssh"} {
		cmd := s.command(context.Background(), "sandbox", "run", name, "--slot", "slot01", "--dir", crew, "--", "/usr/bin/sleep", "614")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running := func() bool { _, _, code := s.lab.Exec(t, "pgrep", "-f", "sleep 614"); return code == 0 }
		until(t, 30*time.Second, "the command runs", running)
		got := s.lab.MustExec(t, "/bin/sh", "-c", `p=$(pgrep -u vs -f "agentworks-deploy on-hos[t]") && readlink /proc/$p/cwd && grep -E "^(Uid|Gid|CapPrm|CapInh)" /proc/$p/status | tr -s "[:space:]" " "`)
		vs := strings.Fields(s.lab.MustExec(t, "/bin/sh", "-c", "id -u vs; id -g vs"))
		want := "/\nUid:" + strings.Repeat(" "+vs[0], 4) + " Gid:" + strings.Repeat(" "+vs[1], 4) + " CapInh: 0000000000000000 CapPrm: 0000000000000000"
		if strings.TrimSpace(got) != want {
			t.Errorf("%s: the half is\n%s\nwant\n%s", name, got, want)
		}
		s.lab.MustExec(t, "pkill", "-KILL", "-f", "sleep 614")
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 137 {
			t.Errorf("%s: killed: %v", name, err)
		}
	}
}
