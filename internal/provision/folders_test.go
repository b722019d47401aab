package provision

import (
	"os"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
)

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
