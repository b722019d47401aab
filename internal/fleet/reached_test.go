package fleet_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"agentworks-deploy/internal/lab/labtest"
)

// ways are the channels that one lab is reached by, each with how a command line
// is run there.
func ways(t *testing.T, o operator, s *seat) map[string]func(t *testing.T, args ...string) (string, string, int) {
	t.Helper()
	s.host(t, "over-lab", "{lab: {name: "+o.lab.Name+"}}", "{lab: {name: "+o.lab.Name+"}}")
	s.host(t, "over-ssh", sshRoot, sshVs)
	s.host(t, "over-ssh-root", sshRoot, sshRoot)
	s.host(t, "over-ssm", "{ssm: {region: "+region+", instance: {stack: prod, output: InstanceId}}}", sshVs)
	s.host(t, "over-ssm-alone", ssmByID, ssmByID)
	s.host(t, "over-local", "{local: {}}", "{local: {}}")
	programs, err := exec.Command("tar", "-C", o.bin, "-c", "agentworks-deploy", "slotctl", "video-studio-landlock-runner", "sample-release").Output()
	if err != nil {
		t.Fatal(err)
	}
	inLab := "/opt/operator/bin"
	o.lab.MustExec(t, "mkdir", "-p", inLab, "/opt/operator/hosts")
	if _, said, code := o.lab.Run(t, labtest.Cmd{Argv: []string{"tar", "-C", inLab, "-x", "--no-same-owner"}, Stdin: string(programs)}); code != 0 {
		t.Fatal(said)
	}
	o.lab.CopyIn(t, filepath.Join(s.dir, "hosts/over-local.yaml"), "/opt/operator/hosts/over-local.yaml", 0o644)
	over := func(name string) func(t *testing.T, args ...string) (string, string, int) {
		return func(t *testing.T, args ...string) (string, string, int) { return s.run(t, named(name, args)...) }
	}
	return map[string]func(t *testing.T, args ...string) (string, string, int){
		"lab": over("over-lab"), "ssh": over("over-ssh"), "ssh-root": over("over-ssh-root"), "ssm": over("over-ssm"), "ssm-alone": over("over-ssm-alone"),
		"local": func(t *testing.T, args ...string) (string, string, int) {
			return o.lab.Exec(t, append([]string{inLab + "/agentworks-deploy", "--hosts-dir", "/opt/operator/hosts"}, named("over-local", args)...)...)
		},
	}
}

// named puts the host's name in the place of HOST.
func named(name string, args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = strings.ReplaceAll(a, "HOST", name)
	}
	return out
}

// Same table, same output, same exit codes, whatever the way (case X-04).
func TestX04SameOverEveryChannel(t *testing.T) {
	o := ready(t)
	s := takeSeat(t, o.lab)
	run := ways(t, o, s)
	steps := []struct {
		args string
		code int
	}{
		{"provision HOST", 0},
		{"provision HOST --plan", 0},
		{"slots assign HOST x04 slot07", 0},
		{"slots assign HOST x04 slot07", 0},
		{"slots assign HOST other slot07", 1},
		{"slots assign HOST ../x04", 2},
		{"slots assign HOST x04 nothere99", 2},
		{"slots status HOST", 0},
		{"slots status HOST --format json", 0},
		{"slots release HOST x04", 0},
		{"slots release HOST x04", 1},
		{"slots assign HOST planned --plan", 0},
		{"slotcheck HOST", 0},
		{"admission scan HOST", 0},
		{"sandbox run HOST --slot slot01 --dir " + crew + " -- id -un", 0},
		{"sandbox run HOST --slot slot01 --dir " + crew + " -- cat own.txt /srv/vs/.env", 1},
		{"deploy HOST --provision=false --release " + filepath.Join(o.bin, "sample-release"), 0},
	}
	for _, step := range steps { // the first time makes the user's tree
		run["lab"](t, strings.Fields(step.args)...)
	}
	want := map[string]string{}
	for _, way := range []string{"lab", "local", "ssh", "ssh-root", "ssm", "ssm-alone"} {
		t.Run(way, func(t *testing.T) {
			for i, step := range steps {
				key := string(rune('a'+i)) + step.args
				args := strings.Fields(step.args)
				if args[0] == "deploy" && way == "local" {
					args[len(args)-1] = "/opt/operator/bin/sample-release"
				}
				stdout, stderr, code := run[way](t, args...)
				got := plainOutput(stdout, way)
				if code != step.code {
					t.Errorf("%s: exit %d, want %d\n%s%s", step.args, code, step.code, stdout, stderr)
				}
				if way == "lab" {
					want[key] = got
				} else if got != want[key] {
					t.Errorf("%s: differs\n%s\nover the lab's own channel:\n%s", step.args, got, want[key])
				}
			}
		})
	}
	for _, script := range s.ssm.Scripts() {
		for _, secret := range []string{"AUTH_SECRET", "SUPABASE", "x-secret"} {
			if strings.Contains(script, secret) {
				t.Errorf("a script holds %q", secret)
			}
		}
	}
	if _, err := os.Stat("/tmp/awd-injected"); err == nil {
		t.Error("something was run on this side")
	}
}

// counted is what a login over ssh adds to: sockets and processes of its session.
var counted = regexp.MustCompile(`[0-9]+ (socket|named process)`)

// plainOutput is stdout without what names the host or the machine it was found on.
func plainOutput(stdout, way string) string {
	var out strings.Builder
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, "INFO channel ") {
			continue
		}
		line = counted.ReplaceAllString(line, "some $1")
		out.WriteString(strings.ReplaceAll(line, "over-"+way, "HOST"))
	}
	return out.String()
}
