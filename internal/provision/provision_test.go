package provision

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"agentworks-deploy/internal/report"
)

func TestP09LayoutAndOwners(t *testing.T) {
	for _, mask := range []int{0o077, 0o000} {
		t.Run(fmt.Sprintf("umask %03o", mask), func(t *testing.T) {
			s := newScratch(t)
			old := syscall.Umask(mask) // of this process; the package never asks for it (case B30)
			s.provision()
			syscall.Umask(old)
			for _, d := range []string{"", "/home", "/state", "/run"} {
				s.is("/srv/svc/slots"+d, serviceID, serviceID, 0o711)
			}
			s.is("/srv/svc/slots/run/.sessions", serviceID, serviceID, 0o700)
			for n, slot := range []string{"slot01", "slot02", "slot03"} {
				id := 70001 + n
				s.is("/srv/svc/slots/home/"+slot, id, id, 0o700)
				s.is("/srv/svc/slots/state/"+slot, serviceID, id, 0o2770)
				s.is("/srv/svc/slots/run/"+slot, serviceID, id, 0o2770)
			}
			s.is("/usr/local/libexec/agentworks", 0, 0, 0o755)
			s.is("/usr/local/libexec/agentworks/slotctl", 0, 0, 0o755)
			s.is("/usr/local/libexec/agentworks/agentworks-deploy", 0, 0, 0o755)
			s.is("/usr/local/libexec/agentworks/slotctl.json", 0, 0, 0o644)
			s.is("/etc/agentworks", 0, serviceID, 0o751)
			s.is("/etc/agentworks/slots.json", 0, serviceID, 0o640)
			s.is("/etc/agentworks/slots.json.lock", 0, 0, 0o600)
			s.is("/etc/sudoers.d/agentworks-slots", 0, 0, 0o440)
			s.is("/srv/svc/releases", serviceID, serviceID, 0o711)
			s.is("/srv/svc/state", serviceID, serviceID, 0o700)
			s.is("/srv/svc/logs", serviceID, serviceID, 0o750)
			s.is("/srv/svc/data/docs/_users", serviceID, serviceID, 0o711)
			s.is("/srv/svc/data/docs/config", serviceID, serviceID, 0o700)
			if got := s.read("/etc/agentworks/slots.json"); got != "{\"slots\":{}}\n" {
				t.Errorf("slots.json is %q", got)
			}
			if got := s.read("/etc/passwd"); !strings.Contains(got, "slot02:x:70002:70002:AgentWorks slot:/srv/svc/slots/home/slot02:/usr/sbin/nologin\n") {
				t.Errorf("passwd is %s", got)
			}
			for _, line := range []string{"slotshared:x:70000:svc,slot01,slot02,slot03\n", "slot01:x:70001:svc\n"} {
				if got := s.read("/etc/group"); !strings.Contains(got, line) {
					t.Errorf("group lacks %q: %s", line, got)
				}
			}
		})
	}
}

func TestARunWithNothingToDoTouchesNothing(t *testing.T) {
	s := newScratch(t)
	s.file("/srv/svc/data/docs/Workflow/wf1/workflow.json", "{}")
	s.dir("/srv/svc/data/docs/_users/u1", 0o755)
	s.provision()
	before := s.snapshot()
	for _, row := range s.provision() {
		if row.State != report.OK && row.State != report.Info {
			t.Errorf("%s %s: %s", row.State, row.Check, row.Detail)
		}
	}
	s.equal(before)
}

func TestAPlanChangesNothingAndSaysWhatARunDoes(t *testing.T) {
	s := newScratch(t)
	s.file("/srv/svc/data/docs/Workflow/wf1/workflow.json", "{}")
	s.dir("/srv/svc/data/docs/_users/u1", 0o755)
	before := s.snapshot()
	planned, err := s.run(true)
	if err != nil {
		t.Fatal(err)
	}
	s.equal(before)
	done := s.provision()
	var plan, run []string
	for _, r := range planned {
		if r.State == report.Planned {
			plan = append(plan, r.Check+" "+r.Slot+" "+r.Detail)
		}
	}
	for _, r := range done {
		if r.State == report.Changed {
			run = append(run, r.Check+" "+r.Slot+" "+r.Detail)
		}
	}
	if a, b := strings.Join(plan, "\n"), strings.Join(run, "\n"); a != b {
		t.Errorf("planned\n%s\ndone\n%s", a, b)
	}
	if len(plan) == 0 || len(plan) > 40 {
		t.Errorf("%d rows for three slots", len(plan))
	}
}

// TestASlotThatLingersIsToldAbout: the fix names every one of them, and a slot
// with a docker of its own needs its manager.
func TestASlotThatLingersIsToldAbout(t *testing.T) {
	s := newScratch(t)
	s.provision()
	s.file("/var/lib/systemd/linger/slot01", "")
	s.file("/var/lib/systemd/linger/slot03", "")
	told := func() (fixes []string) {
		for _, row := range s.provision() {
			if row.Check == "slot-managers" && row.State == report.Warn {
				fixes = append(fixes, row.Fix.Line())
			}
		}
		return fixes
	}
	if got := told(); !slices.Equal(got, []string{"fix: loginctl disable-linger slot01 slot03"}) {
		t.Errorf("got %q", got)
	}
	config := s.host.Layout().SlotctlConfig()
	s.file(config, strings.Replace(s.read(config), `"slot_docker": false`, `"slot_docker": true`, 1))
	if got := told(); got != nil {
		t.Errorf("with slot_docker: %q", got)
	}
}

func TestP03AccountOfSomebodyElse(t *testing.T) {
	s := newScratch(t)
	s.host.Slots.Count = 10
	s.append("/etc/passwd", "slot07:x:5007:5007::/elsewhere:/bin/sh\n")
	s.append("/etc/group", "slot07:x:5007:\n")
	s.refused(report.ExitState, "slot07", "/elsewhere", "/etc/passwd")
}

func TestP05HalfDoneIsFinished(t *testing.T) {
	s := newScratch(t)
	s.provision()
	s.file("/etc/agentworks/slots.json", `{"slots":{"slot01":"u1"},"note":1}`)
	for _, p := range []string{"/etc/sudoers.d/agentworks-slots", "/usr/local/libexec/agentworks/slotctl.json"} {
		if err := os.Remove(s.at(p)); err != nil {
			t.Fatal(err)
		}
	}
	s.chmod("/etc/agentworks/slots.json", 0o600)
	s.chown("/etc/agentworks/slots.json", 0, 0)
	s.file("/etc/sudoers.d/.agentworks-slots.agentworks-new", "half")
	s.file("/etc/agentworks/.slots.json.agentworks-new", "half")
	s.provision()
	s.is("/etc/sudoers.d/agentworks-slots", 0, 0, 0o440)
	s.is("/usr/local/libexec/agentworks/slotctl.json", 0, 0, 0o644)
	s.is("/etc/agentworks/slots.json", 0, serviceID, 0o640)
	if got := s.read("/etc/agentworks/slots.json"); got != `{"slots":{"slot01":"u1"},"note":1}` {
		t.Errorf("the table was rewritten: %s", got)
	}
	for _, p := range []string{"/etc/sudoers.d/.agentworks-slots.agentworks-new", "/etc/agentworks/.slots.json.agentworks-new"} {
		if _, err := os.Lstat(s.at(p)); err == nil {
			t.Errorf("%s is left", p)
		}
	}
}

func TestMissingPlatformIsNamedAtOnce(t *testing.T) {
	s := newScratch(t)
	s.host.Product = "other"
	s.host.Paths.Home = "/srv/other/home"
	s.host.Release.Services = []string{"other-workspace"}
	s.refused(report.ExitState, "service account other", "app folder /srv/other", "unit other-workspace.service")
}

func TestSecondProductOnTheSameHost(t *testing.T) {
	for _, order := range [][]string{{"svc", "conf"}, {"conf", "svc"}, {"svc", "conf", "svc"}} {
		t.Run(strings.Join(order, "-"), func(t *testing.T) {
			s := newScratch(t)
			s.append("/etc/passwd", "conf:x:4991:4991::/srv/conf/home:/bin/sh\n")
			s.append("/etc/group", "conf:x:4991:\n")
			s.dir("/srv/conf", 0o755)
			s.chown("/srv/conf", 4991, 4991)
			s.file("/srv/conf/home/.config/systemd/user/conf-workspace.service", "")
			first := s.host
			second := first
			second.Product, second.Slots.Prefix, second.Release.Services = "conf", "cf", []string{"conf-workspace"}
			base := map[string]int{}
			for _, product := range order {
				s.host = first
				if product == "conf" {
					s.host = second
				}
				s.provision()
				if _, ok := base[product]; !ok {
					base[product] = 70000 + 1000*len(base)
				}
			}
			s.is("/etc/agentworks", 0, serviceID, 0o751)
			s.is("/etc/agentworks/slots.json", 0, serviceID, 0o640)
			s.is("/etc/agentworks/conf", 0, 4991, 0o750)
			s.is("/etc/agentworks/conf/slots.json", 0, 4991, 0o640)
			s.is("/usr/local/libexec/agentworks/conf/slotctl", 0, 0, 0o755)
			s.is("/srv/svc/slots/home/slot01", base["svc"]+1, base["svc"]+1, 0o700)
			s.is("/srv/conf/slots/home/cf01", base["conf"]+1, base["conf"]+1, 0o700)
			if got := s.read("/etc/sudoers.d/agentworks-slots-conf"); !strings.Contains(got, "Runas_Alias AGENTWORKS_SLOTS_CONF = cf01, cf02, cf03\n") {
				t.Error(got)
			}
			if before := s.snapshot(); true {
				for _, h := range order {
					s.host = first
					if h == "conf" {
						s.host = second
					}
					s.provision()
				}
				s.equal(before)
			}
		})
	}
}

func TestTwoProductsWithOnePrefixAreRefused(t *testing.T) {
	s := newScratch(t)
	s.provision()
	s.append("/etc/passwd", "conf:x:4991:4991::/srv/conf/home:/bin/sh\n")
	s.append("/etc/group", "conf:x:4991:\n")
	s.dir("/srv/conf", 0o755)
	s.host.Product, s.host.Release.Services = "conf", nil
	s.refused(report.ExitState, "slot01", "/srv/svc/slots/home/slot01", "slots.prefix")
}

func TestWhatArrivedMustBeWhatWasSent(t *testing.T) {
	s := newScratch(t)
	s.provision()
	req := s.request(false)
	req.Slotctl = program("other")
	req.Slotctl.SHA256 = strings.Repeat("0", 64)
	_, err := Run(t.Context(), s.system(), req)
	if err == nil || !strings.Contains(err.Error(), "sha256") {
		t.Fatal(err)
	}
	if got := s.read("/usr/local/libexec/agentworks/slotctl"); got != "slotctl" {
		t.Errorf("slotctl is %q", got)
	}
}
