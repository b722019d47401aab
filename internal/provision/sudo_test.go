package provision

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

func TestSudoRuleText(t *testing.T) {
	host := hosts.Host{Product: "vs", Slots: hosts.Slots{Count: 2}}
	second := hosts.Host{Product: "the-other", Slots: hosts.Slots{Prefix: "cf", Count: 2, Sudo: "direct", RequestFile: true}}
	for _, c := range []struct {
		host hosts.Host
		kind sudoKind
		want string
	}{
		{host, sudoKind{requiretty: true, matchByGID: true}, `Defaults:vs !requiretty
Defaults:vs env_reset
Defaults:vs secure_path="/usr/bin:/bin"
Defaults:vs match_group_by_gid
Runas_Alias AGENTWORKS_SLOTS = slot01, slot02
vs ALL=(AGENTWORKS_SLOTS) NOPASSWD: /usr/local/libexec/agentworks/slotctl exec
`},
		{host, sudoKind{}, `Defaults:vs env_reset
Defaults:vs secure_path="/usr/bin:/bin"
Runas_Alias AGENTWORKS_SLOTS = slot01, slot02
vs ALL=(AGENTWORKS_SLOTS) NOPASSWD: /usr/local/libexec/agentworks/slotctl exec
`},
		{second, sudoKind{requiretty: true}, `Defaults:the-other !requiretty
Defaults:the-other env_reset
Defaults:the-other secure_path="/usr/bin:/bin"
Defaults:the-other !use_pty, !pam_session, !pam_setcred
Runas_Alias AGENTWORKS_SLOTS_THE_OTHER = cf01, cf02
the-other ALL=(AGENTWORKS_SLOTS_THE_OTHER) NOPASSWD: /usr/local/libexec/agentworks/the-other/slotctl exec, /usr/local/libexec/agentworks/the-other/slotctl exec --request-file *
`},
	} {
		if got := string(sudoRuleText(c.host.Layout(), c.host.Slots, c.kind)); got != c.want {
			t.Errorf("got\n%swant\n%s", got, c.want)
		}
	}
}

// TestB14NoWildcardInArguments, unless the host file asks for the old form.
func TestB14NoWildcardInArguments(t *testing.T) {
	host := hosts.Host{Product: "vs"}
	if text := string(sudoRuleText(host.Layout(), host.Slots, sudoKind{requiretty: true, matchByGID: true})); strings.ContainsAny(text, "*?[") {
		t.Error(text)
	}
}

// sudoRS reads as sudo-rs does: no requiretty, no match_group_by_gid, no
// wildcard in arguments.
const sudoRS = `case "$2" in -f) ! grep -q 'requiretty\|match_group\|\*$' "$3" || { echo "unknown setting" >&2; exit 1; };; esac`

func TestSudoThatKnowsLess(t *testing.T) {
	s := newScratch(t)
	s.program("visudo", sudoRS)
	s.provision()
	if got := s.read("/etc/sudoers.d/agentworks-slots"); strings.Contains(got, "requiretty") || strings.Contains(got, "match_group") {
		t.Error(got)
	}
	s.host.Slots.RequestFile = true
	s.refused(report.ExitState, "slots.request_file", "sudo-rs")
	s.program("visudo", "exit 0")
	s.provision()
	if got := s.read("/etc/sudoers.d/agentworks-slots"); !strings.Contains(got, "--request-file *\n") || !strings.Contains(got, "!requiretty") {
		t.Error(got)
	}
}

// TestB17OldRuleComesBack: a set that is not valid as a whole is a dead sudo.
func TestB17OldRuleComesBack(t *testing.T) {
	rule := "/etc/sudoers.d/agentworks-slots"
	for _, old := range []string{"", "vs ALL=(slot01) NOPASSWD: /old\n"} {
		s := newScratch(t)
		s.program("visudo", fmt.Sprintf(`[ "$2" = -f ] || ! grep -q exec %s%s || { echo "parse error in agentworks-slots" >&2; exit 1; }`, s.root, rule))
		if old != "" {
			s.file(rule, old)
		}
		_, err := s.run(false)
		if report.CodeOf(err) != report.ExitState || !strings.Contains(err.Error(), "parse error") {
			t.Errorf("%v", err)
		}
		if old == "" {
			if _, err := os.Lstat(s.at(rule)); err == nil {
				t.Error("the new file is still there")
			}
		} else {
			if got := s.read(rule); got != old {
				t.Errorf("got %q", got)
			}
			s.is(rule, 0, 0, 0o440)
		}
	}
}

// TestWholeSetIsCheckedByEveryRun: a run may have been killed between putting
// the rule in place and checking it.
func TestWholeSetIsCheckedByEveryRun(t *testing.T) {
	s := newScratch(t)
	s.provision()
	s.program("visudo", `[ "$2" = -f ] || { echo "somebody else's file" >&2; exit 1; }`)
	s.refused(report.ExitState, "somebody else's file")
}

// TestB16RuleIsNeverOpen: whenever its folder is looked at, no file in it has a
// wider mode than 0440.
func TestB16RuleIsNeverOpen(t *testing.T) {
	s := newScratch(t)
	seen := make(chan string, 1)
	stop := make(chan struct{})
	go func() {
		defer close(seen)
		for {
			select {
			case <-stop:
				return
			default:
			}
			entries, _ := os.ReadDir(s.at("/etc/sudoers.d"))
			for _, e := range entries {
				if info, err := e.Info(); err == nil && info.Mode().Perm()&^0o440 != 0 {
					seen <- fmt.Sprintf("%s has mode %04o", e.Name(), info.Mode().Perm())
					return
				}
			}
		}
	}()
	for range 20 {
		s.provision()
		if err := os.Remove(s.at("/etc/sudoers.d/agentworks-slots")); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if wrong := <-seen; wrong != "" {
		t.Error(wrong)
	}
}

func TestNoVisudoIsARefusal(t *testing.T) {
	s := newScratch(t)
	os.Remove(s.at("/usr/sbin/visudo"))
	s.refused(report.ExitState, "visudo")
}

// TestB18ToolThatAsksDoesNotHang: nothing is on a tool's standard input.
func TestB18ToolThatAsksDoesNotHang(t *testing.T) {
	s := newScratch(t)
	s.program("visudo", "read answer; exit 1")
	s.refused(report.ExitState, "reads no form of the rule")
}
