package fleet_test

import (
	"encoding/json"
	"encoding/xml"
	"path/filepath"
	"strings"
	"testing"
)

// Several hosts answer in their order, with one matrix and one exit code.
func TestSeveralHosts(t *testing.T) {
	o := ready(t)
	s := takeSeat(t, o.lab)
	s.host(t, "a-ssh", sshRoot, sshVs)
	s.host(t, "b-gone", sshRoot, "{ssh: {host: nowhere.invalid, user: vs}}")
	s.host(t, "c-ssm", strings.Replace(ssmByID, "id: "+instance, "tag: Name=thelab", 1), ssmByID)

	stdout, stderr, code := s.run(t, "slotcheck", "--all", "--max-parallel", "2")
	at := func(text string) int { return strings.Index(stdout, text) }
	if code != 3 || at("== a-ssh ==") < 0 || at("== b-gone") >= 0 && at("== b-gone") < at("== a-ssh ==") || at("== c-ssm ==") < at("== a-ssh ==") || at("\nCHECK ") < at("== c-ssm ==") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if last := strings.Join(strings.Fields(lines[len(lines)-1]), " "); last != "exit 0 3 0" {
		t.Errorf("the matrix ends with %q", last)
	}

	stdout, stderr, code = s.run(t, "slotcheck", "b-gone", "a-ssh", "c-ssm", "--canary", "--format", "json")
	var all struct {
		V       int
		Reports []struct{ Host string }
		Exit    int
	}
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || code != 3 || len(all.Reports) != 1 || all.Exit != 3 || strings.Count(stderr, "was not asked") != 2 {
		t.Errorf("exit %d, %v\n%s%s", code, err, stdout, stderr)
	}
	for _, args := range []string{"slotcheck --all a-ssh", "slotcheck", "slotcheck a-ssh a-ssh", "slotcheck a-ssh unknown", "slotcheck --all --max-parallel 0", "slotcheck a-ssh c-ssm --format yaml", "deploy a-ssh c-ssm"} {
		sent := len(s.ssm.Scripts())
		if stdout, stderr, code := s.run(t, strings.Fields(args)...); code != 2 || stdout != "" || len(s.ssm.Scripts()) != sent {
			t.Errorf("%s: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}

	stdout, stderr, code = s.run(t, "slotcheck", "a-ssh", "c-ssm", "--format", "junit")
	var suites struct {
		Suites []struct {
			Name     string `xml:"name,attr"`
			Failures int    `xml:"failures,attr"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(stdout), &suites); err != nil || code != 0 || len(suites.Suites) != 2 || suites.Suites[1].Name != "slotcheck c-ssm" || suites.Suites[1].Failures != 0 {
		t.Errorf("junit of two: exit %d, %v\n%s%s", code, err, stdout, stderr)
	}

	s.host(t, "c-ssm", "{ssm: {region: "+region+", instance: {tag: Name=thelab}}}", sshVs)
	release := filepath.Join(o.bin, "sample-release")
	stdout, stderr, code = s.run(t, "deploy", "a-ssh", "c-ssm", "--canary", "--release", release)
	lines = strings.Split(strings.TrimSpace(stdout), "\n")
	if last := strings.Join(strings.Fields(lines[len(lines)-1]), " "); code != 0 || last != "exit 0 0" || strings.Count(stdout, "is live on ") != 2 {
		t.Errorf("deploy to two: exit %d\n%s%s", code, stdout, stderr)
	}
	stdout, stderr, code = s.run(t, "deploy", "b-gone", "a-ssh", "--canary", "--release", release)
	if code != 3 || strings.Contains(stdout, "a-ssh") || !strings.Contains(stderr, "a-ssh was not asked") {
		t.Errorf("deploy with a failed canary: exit %d\n%s%s", code, stdout, stderr)
	}

	// A plan says which machine the name led to; one look-up serves the run.
	before := s.ssm.Calls("DescribeInstanceInformation")
	stdout, stderr, code = s.run(t, "slots", "assign", "c-ssm", "someone", "--plan")
	if code != 0 || !strings.Contains(stdout, "INFO channel "+instance+": tag Name=thelab in "+region) {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	if n := s.ssm.Calls("DescribeInstanceInformation") - before; n != 2 { // the tag, and whether it is online
		t.Errorf("%d look-ups", n)
	}
}
