package provision

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

const sharedID = 70000 // of slotshared on a fresh scratch host

// node holds the file at p until the test ends.
func (s *scratch) node(p string) *safefs.Node {
	s.t.Helper()
	dir, name, err := safefs.OpenParent(s.at(p))
	if err != nil {
		s.t.Fatal(err)
	}
	defer dir.Close()
	n, err := dir.Open(name)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { n.Close() })
	return n
}

func (s *scratch) acl(p string, kind safefs.ACLKind) safefs.ACL {
	s.t.Helper()
	acl, err := s.node(p).ACL(kind)
	if err != nil {
		s.t.Fatal(err)
	}
	return acl
}

func (s *scratch) setACL(p string, kind safefs.ACLKind, acl safefs.ACL) {
	s.t.Helper()
	if _, err := s.node(p).EnsureACL(kind, acl); err != nil {
		s.t.Fatal(err)
	}
}

func named(acl safefs.ACL, gid uint32) int {
	for _, e := range acl {
		if e.Tag == safefs.ACLNamed && e.ID == gid {
			return int(e.Perm)
		}
	}
	return -1
}

func TestP07SharedFoldersAreOpenToTheGroup(t *testing.T) {
	s := newScratch(t)
	docs := "/srv/svc/data/docs"
	s.owned(docs+"/Workflow/wf1/runs", 0o710)
	s.owned(docs+"/Workflow/wf1", 0o750)
	s.owned(docs+"/Workflow", 0o755)
	s.file(docs+"/Workflow/wf1/runs/note", "x")
	s.file(docs+"/Workflow/wf1/run.sh", "x")
	s.chmod(docs+"/Workflow/wf1/run.sh", 0o4755)
	s.chmod(docs+"/Workflow/wf1/runs/note", 0o600)
	s.provision()
	for _, d := range []string{"/Workflow", "/Workflow/wf1", "/Workflow/wf1/runs"} {
		if named(s.acl(docs+d, safefs.AccessACL), sharedID) != 7 || named(s.acl(docs+d, safefs.DefaultACL), sharedID) != 7 {
			t.Errorf("%s: %v, default %v", d, s.acl(docs+d, safefs.AccessACL), s.acl(docs+d, safefs.DefaultACL))
		}
	}
	s.is(docs+"/Workflow", serviceID, sharedID, 0o2775)
	s.is(docs+"/Workflow/wf1", serviceID, sharedID, 0o2770)
	s.is(docs+"/Workflow/wf1/runs", serviceID, sharedID, 0o2770)
	s.is(docs+"/Workflow/wf1/runs/note", 0, sharedID, 0o660)
	s.is(docs+"/Workflow/wf1/run.sh", 0, sharedID, 0o775)
	if named(s.acl(docs+"/Workflow/wf1/runs/note", safefs.AccessACL), sharedID) != 6 {
		t.Error("note is closed to the group")
	}
	if _, err := os.Stat(s.at(docs + "/Downloads")); err == nil {
		t.Error("a shared folder was made")
	}

	// Made later, closed by its creator: the ACL keeps it open, the mode caps it.
	s.owned(docs+"/Workflow/later", 0o770)
	s.chown(docs+"/Workflow/later", serviceID, serviceID)
	f, err := os.OpenFile(s.at(docs+"/Workflow/later/file"), os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	acl := s.acl(docs+"/Workflow/later/file", safefs.AccessACL)
	if named(acl, sharedID) != 7 {
		t.Errorf("a later file has %v", acl)
	}
	s.provision()
	before := s.snapshot()
	s.provision()
	s.equal(before)
}

// TestB21WiderMaskWakesNoRights: what the old mask held down stays down.
func TestB21WiderMaskWakesNoRights(t *testing.T) {
	have := safefs.ACL{
		{Tag: safefs.ACLOwner, Perm: 7}, {Tag: safefs.ACLUser, ID: 5, Perm: 7}, {Tag: safefs.ACLUser, ID: 6, Perm: 4},
		{Tag: safefs.ACLGroup, Perm: 5}, {Tag: safefs.ACLNamed, ID: 9, Perm: 7}, {Tag: safefs.ACLMask, Perm: 1}, {Tag: safefs.ACLOther, Perm: 0},
	}
	want := safefs.ACL{
		{Tag: safefs.ACLOwner, Perm: 7}, {Tag: safefs.ACLUser, ID: 5, Perm: 1}, {Tag: safefs.ACLUser, ID: 6, Perm: 0},
		{Tag: safefs.ACLGroup, Perm: 7}, {Tag: safefs.ACLNamed, ID: 9, Perm: 1}, {Tag: safefs.ACLNamed, ID: 70000, Perm: 7}, {Tag: safefs.ACLMask, Perm: 7}, {Tag: safefs.ACLOther, Perm: 0},
	}
	got := widen(have, 7, 70000)
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if again := widen(got, 7, 70000); !slices.Equal(again, want) {
		t.Errorf("again: %v", again)
	}
	s := newScratch(t)
	s.owned("/srv/svc/data/docs/Workflow", 0o755)
	s.setACL("/srv/svc/data/docs/Workflow", safefs.AccessACL, have)
	s.provision()
	if got := s.acl("/srv/svc/data/docs/Workflow", safefs.AccessACL); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestPrivateRootsStayClosed(t *testing.T) {
	s := newScratch(t)
	docs := "/srv/svc/data/docs"
	private := []string{"/tmp/.agent-browser", "/tmp/profile", "/tmp/profile-users", "/Workflow/other-projects", "/Workflow/state"}
	for _, p := range private {
		s.owned(docs+p+"/inner", 0o700)
		s.owned(docs+p, 0o700)
		s.file(docs+p+"/inner/Cookies", "x")
		s.chmod(docs+p+"/inner/Cookies", 0o600)
	}
	s.owned(docs+"/tmp/profile2", 0o700)
	s.chmod(docs+"/tmp/.agent-browser", 0o755)
	s.chown(docs+"/tmp/.agent-browser", 0, 0)
	s.setACL(docs+"/tmp/.agent-browser", safefs.DefaultACL, safefs.ACLFromMode(0o777))
	s.file("/srv/svc/.env", fmt.Sprintf("AGENT_BROWSER_SHARED_PROFILE='%s/tmp/profile'\n", docs))
	// A process of the service, whose environment .env does not hold (yet).
	s.file("/proc/77/status", "Name:\tworkspace\nUid:\t4990\t4990\t4990\t4990\nGid:\t4990\t4990\t4990\t4990\nGroups:\t4990\n")
	s.file("/proc/77/cgroup", "0::/user.slice/user@4990.service/app.slice/svc-workspace.service\n")
	s.file("/proc/77/environ", fmt.Sprintf("AGENT_BROWSER_PROFILE_ROOT=%s/Workflow/other\x00AGENTWORKS_STATE_ROOT=%s/Workflow/state/\x00", docs, docs))
	rows := s.provision()
	s.is(docs+"/tmp/.agent-browser", serviceID, serviceID, 0o700)
	if acl := s.acl(docs+"/tmp/.agent-browser", safefs.DefaultACL); acl != nil {
		t.Errorf("the browser's sockets would be open: %v", acl)
	}
	for _, p := range private {
		s.is(docs+p, serviceID, serviceID, 0o700)
		s.is(docs+p+"/inner", serviceID, serviceID, 0o700)
		s.is(docs+p+"/inner/Cookies", 0, 0, 0o600)
	}
	s.is(docs+"/tmp/profile2", serviceID, sharedID, 0o2770)

	// case P-11: the running process has none of the new groups.
	i := slices.IndexFunc(rows, func(r report.Row) bool { return r.Check == "service-groups" })
	if i < 0 || rows[i].State != report.Warn || !slices.Equal(rows[i].Fix.Argv, []string{"systemctl", "restart", "user@4990.service"}) {
		t.Errorf("%+v", rows)
	}
	s.file("/proc/77/status", "Name:\tworkspace\nUid:\t4990\t4990\t4990\t4990\nGid:\t4990\t4990\t4990\t4990\nGroups:\t70000 70001 70002 70003\n")
	rows = s.provision()
	if last := rows[len(rows)-1]; last.Check != "service-groups" || last.State != report.OK {
		t.Errorf("%+v", last)
	}
}

func TestSharedFoldersLeaveOtherNamesAlone(t *testing.T) {
	s := newScratch(t)
	docs := "/srv/svc/data/docs"
	s.owned(docs+"/Workflow", 0o755)
	s.file("/srv/outside", "secret")
	s.chmod("/srv/outside", 0o600)
	if err := os.Link(s.at("/srv/outside"), s.at(docs+"/Workflow/hard")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.at("/srv/outside"), s.at(docs+"/Workflow/soft")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(s.at("/srv"), s.at(docs+"/tmp-link")); err != nil {
		t.Fatal(err)
	}
	s.owned(docs+"/tmp", 0o755)
	if err := os.Symlink(s.at("/srv"), s.at(docs+"/tmp/.agent-browser")); err != nil {
		t.Fatal(err)
	}
	rows := s.provision()
	s.is("/srv/outside", 0, 0, 0o600)
	s.is("/srv", 0, 0, 0o755)
	said := 0
	for _, r := range rows {
		if r.Check == "shared-folders" && (r.State == report.Info || r.State == report.Warn) {
			said++
		}
	}
	if said != 2 {
		t.Errorf("%d notes in %+v", said, rows)
	}
}

func TestPrivateRootsOf(t *testing.T) {
	got := privateRootsOf(map[string]string{
		"HOME": "/srv/vs/home", "AGENT_BROWSER_SHARED_PROFILE": "/data/p/", "AGENT_BROWSER_PROFILE_ROOT": "relative", "AGENTWORKS_STATE_ROOT": "/srv",
	}, "/srv/vs/docs")
	want := []string{"/tmp/.agent-browser", "/srv/vs/docs/tmp/.agent-browser"}
	for _, base := range []string{"/data/p", "/srv/vs/home/.config/agentworks/browser-profile"} {
		for _, suffix := range []string{"", "-users", "-workflows", "-projects"} {
			want = append(want, base+suffix)
		}
	}
	for _, p := range want {
		if !slices.Contains(got, p) {
			t.Errorf("%s is not private", p)
		}
	}
	if slices.Contains(got, "/srv") || slices.Contains(got, "relative") {
		t.Errorf("%q", got)
	}
}
