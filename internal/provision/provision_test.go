package provision

import (
	"encoding/json"
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

// TestP01AllowedFoldersFollowDocsRoot: both fields come from one value.
func TestP01AllowedFoldersFollowDocsRoot(t *testing.T) {
	for docs, want := range map[string]string{"": "/srv/svc/data/docs", "/data/svc/docs": "/data/svc/docs"} {
		s := newScratch(t)
		s.host.Paths.Docs = docs
		s.provision()
		var c struct {
			DocsRoot   string   `json:"docs_root"`
			AllowedCwd []string `json:"allowed_cwd"`
		}
		if err := json.Unmarshal([]byte(s.read("/usr/local/libexec/agentworks/slotctl.json")), &c); err != nil {
			t.Fatal(err)
		}
		if c.DocsRoot != want || len(c.AllowedCwd) != 2 || c.AllowedCwd[0] != want || c.AllowedCwd[1] != "/srv/svc/slots" {
			t.Errorf("docs %q: %+v", docs, c)
		}
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

func TestP06OnlySearchIsAddedAboveTheApp(t *testing.T) {
	s := newScratch(t)
	s.host.Paths.App = "/srv/grp/svc"
	s.host.Paths.Home = "/srv/svc/home"
	s.dir("/srv/grp", 0o700)
	s.owned("/srv/grp/svc", 0o750)
	s.chmod("/srv", 0o750)
	rows := s.provision()
	s.is("/srv", 0, 0, 0o750)
	s.is("/srv/grp", 0, 0, 0o701)
	s.is("/srv/grp/svc", serviceID, serviceID, 0o751)
	warned := false
	for _, r := range rows {
		warned = warned || r.State == report.Warn && strings.HasPrefix(r.Detail, "/srv is not searchable")
	}
	if !warned {
		t.Error("nobody said that /srv is closed")
	}
	before := s.snapshot()
	s.provision()
	s.equal(before)
}

func TestP08PrivacyBeforeTheFirstAssignment(t *testing.T) {
	s := newScratch(t)
	s.owned("/srv/svc/data/docs/_users/u9", 0o755)
	s.owned("/srv/svc/data/docs/config", 0o755)
	if err := os.Symlink("/etc", s.at("/srv/svc/data/docs/_users/u8")); err != nil {
		t.Fatal(err)
	}
	for _, row := range s.provision() {
		if strings.Contains(row.Detail, "u9") {
			t.Errorf("a user id is printed: %s", row.Detail)
		}
	}
	s.is("/srv/svc/data/docs/_users", serviceID, serviceID, 0o711)
	s.is("/srv/svc/data/docs/_users/u9", serviceID, serviceID, 0o750)
	s.is("/srv/svc/data/docs/config", serviceID, serviceID, 0o700)
}

func TestP10AdministratorsSwitchStays(t *testing.T) {
	s := newScratch(t)
	config := "/usr/local/libexec/agentworks/slotctl.json"
	s.provision()
	fresh := s.read(config)
	s.file(config, strings.Replace(fresh, `"slot_docker": false`, `"slot_docker": true, "later": {"a": [1]}`, 1))
	s.chmod(config, 0o666)
	s.provision()
	s.is(config, 0, 0, 0o644)
	var c map[string]any
	if err := json.Unmarshal([]byte(s.read(config)), &c); err != nil {
		t.Fatal(err)
	}
	if c["slot_docker"] != true || c["later"] == nil {
		t.Errorf("%v", c)
	}
	s.host.Paths.Docs = "/data/docs"
	s.provision()
	if got := s.read(config); !strings.Contains(got, `"slot_docker": true`) || !strings.Contains(got, `"later"`) || !strings.Contains(got, `"docs_root": "/data/docs"`) {
		t.Error(got)
	}
	s.file(config, "not JSON")
	s.provision()
	if got := s.read(config); !strings.Contains(got, `"slot_docker": false`) {
		t.Error(got)
	}
}

func TestNewConfigIsTheOneOfTheFormats(t *testing.T) {
	s := newScratch(t)
	s.provision()
	want := `{
  "slot_prefix": "slot",
  "slot_docker": false,
  "allowed_exec": [
    "/srv/svc/releases/*/bin/video-studio-landlock-runner",
    "/usr/bin/tmux",
    "/usr/bin/chmod"
  ],
  "allowed_cwd": [
    "/srv/svc/data/docs",
    "/srv/svc/slots"
  ],
  "slot_run_root": "/srv/svc/slots/run",
  "slot_state_root": "/srv/svc/slots/state",
  "docs_root": "/srv/svc/data/docs",
  "slot_table": "/etc/agentworks/slots.json"
}
`
	if got := s.read("/usr/local/libexec/agentworks/slotctl.json"); got != want {
		t.Errorf("got %s", got)
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

// TestB09LinksAreNotFollowed: root gives nothing away through a link that
// somebody planted where it works.
func TestB09LinksAreNotFollowed(t *testing.T) {
	t.Run("in a home", func(t *testing.T) {
		s := newScratch(t)
		s.provision()
		if err := os.Symlink("/etc", s.at("/srv/svc/slots/home/slot01/workspace")); err != nil {
			t.Fatal(err)
		}
		before := s.snapshot()
		s.provision()
		s.equal(before)
	})
	for _, p := range []string{"/srv/svc/slots/home/slot01", "/srv/svc/slots/home", "/srv/svc/slots", "/srv/svc/data/docs/_users", "/srv/svc/data/docs/Workflow", "/srv/svc/releases"} {
		t.Run("instead of "+p, func(t *testing.T) {
			s := newScratch(t)
			s.dir("/outside/slot01", 0o755)
			s.file("/outside/secret", "x")
			s.provision()
			os.RemoveAll(s.at(p))
			if err := os.Symlink(s.at("/outside"), s.at(p)); err != nil {
				t.Fatal(err)
			}
			s.chown(p, serviceID, serviceID)
			if _, err := s.run(false); err == nil {
				t.Error("went through a link")
			}
			s.is("/outside", 0, 0, 0o755)
			s.is("/outside/slot01", 0, 0, 0o755)
			s.is("/outside/secret", 0, 0, 0o644)
		})
	}
}

func TestB12FoldersOnTheWayAreSearchable(t *testing.T) {
	s := newScratch(t)
	s.host.Paths.Docs = "/data/svc/docs"
	s.provision()
	s.is("/data", 0, 0, 0o755)
	s.is("/data/svc", 0, 0, 0o755)
	s.is("/data/svc/docs", serviceID, serviceID, 0o711)
}

func TestEnvFileIsClosed(t *testing.T) {
	s := newScratch(t)
	s.file("/srv/svc/.env", "AUTH_SECRET=x\n")
	s.provision()
	s.is("/srv/svc/.env", serviceID, serviceID, 0o600)
	os.Remove(s.at("/srv/svc/.env"))
	s.file("/outside", "x")
	os.Symlink(s.at("/outside"), s.at("/srv/svc/.env"))
	s.provision()
	s.is("/outside", 0, 0, 0o644)
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

// TestDocsBehindALink: one that root made leads on, one of the service does not.
func TestDocsBehindALink(t *testing.T) {
	s := newScratch(t)
	s.host.Paths.Docs = "/srv/link/docs"
	s.dir("/mnt", 0o700)
	s.owned("/mnt/volume/docs/_users", 0o755)
	s.owned("/mnt/volume/docs", 0o750)
	s.chmod("/mnt/volume", 0o750)
	if err := os.Symlink("../mnt/volume", s.at("/srv/link")); err != nil {
		t.Fatal(err)
	}
	s.owned("/mnt/volume/docs/tmp/profile", 0o700)
	s.file("/srv/svc/.env", "AGENT_BROWSER_SHARED_PROFILE=/mnt/volume/docs/tmp/profile\n")
	s.provision()
	s.is("/mnt/volume/docs/tmp/profile", serviceID, serviceID, 0o700)
	s.is("/mnt", 0, 0, 0o701)
	s.is("/mnt/volume", 0, 0, 0o751)
	s.is("/mnt/volume/docs", serviceID, serviceID, 0o751)
	s.is("/mnt/volume/docs/_users", serviceID, serviceID, 0o711)
	if got := s.read("/usr/local/libexec/agentworks/slotctl.json"); !strings.Contains(got, `"docs_root": "/srv/link/docs"`) {
		t.Error(got)
	}
	s.chown("/srv/link", serviceID, serviceID)
	s.refused(report.ExitState, "write the real folder")
}
