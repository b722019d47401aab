package provision

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
)

const (
	scratchSysctl = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
	profilePath   = "/etc/apparmor.d/svc-slot-userns"
)

func TestP13ExceptionOnlyWhereItIsNeeded(t *testing.T) {
	s := newScratch(t)
	s.provision()
	s.file(scratchSysctl, "0\n")
	s.provision()
	if _, err := os.Lstat(s.at(profilePath)); err == nil {
		t.Error("there is a profile")
	}
	s.file(scratchSysctl, "1\n")
	s.refused(report.ExitState, "apparmor_parser")
	// The parser notes how it was called; the kernel's list follows --replace.
	s.file("/sys/kernel/security/apparmor/profiles", "other (enforce)\n")
	s.program("apparmor_parser", fmt.Sprintf(`r=%s; echo "$@" >> $r/calls
case "$1" in
--replace) sed -n 's/^profile \([^ ]*\) .*/\1 (unconfined)/p' "$2" >> $r/sys/kernel/security/apparmor/profiles ;;
*) cat > $r/checked ;;
esac`, s.root))
	before := s.snapshot()
	if _, err := s.run(true); err != nil {
		t.Fatal(err)
	}
	s.equal(before)
	s.provision()
	s.is(profilePath, 0, 0, 0o644)
	text := s.read(profilePath)
	for _, p := range []string{
		"/usr/local/libexec/agentworks/slotctl ", "/srv/svc/releases/**/bin/video-studio-landlock-runner ", "/srv/svc/releases/**/bin/agentworks-deploy ",
		"/srv/svc/releases/**/bin/svc-workspace ", "/srv/svc/releases/**/bin/workspace-security.test ",
	} {
		if strings.Count(text, " "+p+"flags=(unconfined)") != 1 {
			t.Errorf("no profile for %s", p)
		}
	}
	if strings.Count(text, "userns,") != 5 || strings.Count(text, "profile ") != 5 || strings.Contains(text, "capability") {
		t.Error(text)
	}
	if s.read("/checked") != text {
		t.Error("something else was checked")
	}
	if got := s.read("/calls"); got != "--skip-kernel-load --skip-cache\n--replace "+s.at(profilePath)+"\n" {
		t.Error(got)
	}
	before = s.snapshot()
	s.provision()
	s.equal(before)

	// Installed, but the machine stopped before the kernel had it.
	s.file("/sys/kernel/security/apparmor/profiles", "other (enforce)\n")
	s.provision()
	if got := s.read("/sys/kernel/security/apparmor/profiles"); !strings.Contains(got, "svc-slotctl") {
		t.Error("not loaded")
	}
}

func TestP13ProfileThatDoesNotParse(t *testing.T) {
	for _, old := range []string{"", "profile old"} {
		for _, fails := range []string{"--skip-kernel-load", "--replace"} {
			s := newScratch(t)
			s.file(scratchSysctl, "1\n")
			s.program("apparmor_parser", fmt.Sprintf(`[ "$1" != %s ] || { echo "syntax error" >&2; exit 1; }`, fails))
			if old != "" {
				s.file(profilePath, old)
			}
			_, err := s.run(false)
			if report.CodeOf(err) != report.ExitState || !strings.Contains(err.Error(), "syntax error") {
				t.Errorf("%v", err)
			}
			if _, err := os.Lstat(s.at(profilePath)); old == "" && err == nil {
				t.Error("there is a profile")
			}
			if old != "" && s.read(profilePath) != old {
				t.Error(s.read(profilePath))
			}
		}
	}
}
