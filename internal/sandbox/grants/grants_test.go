package grants

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree is a scratch host: app with state, docs below it, a service home.
type tree struct {
	t                     *testing.T
	root, app, docs, home string
	places                Places
}

func newTree(t *testing.T) *tree {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &tree{t: t, root: root, app: root + "/srv/svc", home: root + "/home/svc"}
	s.docs = s.app + "/data/docs"
	s.dir(s.app+"/state", s.app+"/state2/x", s.docs+"/Workflow/wf1", s.docs+"/_users/u1/Chats/Work/projects/p", s.app+"/slots/home/slot01", s.home)
	s.places = Places{
		Docs: s.docs, State: s.app + "/state",
		SharedProfile: s.app + "/state/browser-profile", ProfileRoot: s.root + "/profiles",
		ConfigHome: s.home + "/.config",
	}
	return s
}

func (s *tree) dir(paths ...string) {
	s.t.Helper()
	for _, p := range paths {
		if err := os.MkdirAll(p, 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *tree) link(target, name string) string {
	s.t.Helper()
	if err := os.Symlink(target, name); err != nil {
		s.t.Fatal(err)
	}
	return name
}

func (s *tree) rules() Rules {
	return Rules{Private: s.places.PrivateRoots(), Roots: []string{s.docs, s.app + "/slots/home/slot01", s.app + "/state2"}}
}

func TestG01SlotNeverGetsAppPrivatePaths(t *testing.T) {
	s := newTree(t)
	project, workflow := s.docs+"/_users/u1/Chats/Work/projects/p", s.docs+"/Workflow/wf1"
	private := []string{
		s.app + "/state/browser-profile", s.app + "/state/browser-profile-projects/project-1--browser",
		s.root + "/profiles", s.root + "/profiles-users/u1", s.root + "/profiles-workflows/w", s.root + "/profiles-projects/p",
		s.home + "/.config/agentworks/browser-profile-projects/p", "/tmp/.agent-browser/o/1", s.docs + "/tmp/.agent-browser/o/1",
		s.app + "/state", s.app + "/state/x",
	}
	rules := s.rules()
	rules.Roots = []string{"/"} // not even where everything else is allowed
	kept, dropped := rules.Filter(slices.Concat(private, []string{project, workflow}))
	if !slices.Equal(kept, []string{project, workflow}) {
		t.Errorf("kept %q", kept)
	}
	if len(dropped) != len(private) {
		t.Errorf("dropped %v", dropped)
	}
	for _, d := range dropped {
		if !strings.Contains(d.String(), d.Path) || d.Why != "it belongs to the app alone" {
			t.Errorf("told as %q", d)
		}
	}
	if _, err := os.Lstat(s.app + "/state/browser-profile-projects"); err == nil {
		t.Error("a profile folder was made")
	}
}

func TestG01StateRootThatHoldsTheDocsIsNotPrivate(t *testing.T) {
	s := newTree(t)
	s.places.State = s.app + "/data"
	if kept, _ := s.rules().Filter([]string{s.docs + "/Workflow/wf1"}); len(kept) != 1 {
		t.Error("the docs root became private")
	}
	// But a state root that only begins like the docs root's parent is private.
	s.places.State = s.app + "/dat"
	if !slices.Contains(s.places.PrivateRoots(), s.app+"/dat") {
		t.Error("the state root is missing")
	}
}

func TestG03SpellingTricks(t *testing.T) {
	s := newTree(t)
	in := s.docs + "/Workflow/wf1"
	s.link(s.app+"/state", s.app+"/state2/alias")
	s.link("../../../../state/absent", in+"/dangling")
	s.link("alias", s.app+"/state2/second")
	s.link(s.app+"/state/sub", in+"/jump")
	s.dir(s.app + "/state/sub")
	s.link("loop", in+"/loop")
	for _, p := range []string{
		s.app + "/state/../state/x", s.app + "//state//x", s.app + "/state/", s.app + "/./state",
		s.app + "/state2/../state", s.app + "/state2/alias", s.app + "/state2/alias/deep/er", s.app + "/state2/second/x",
		in + "/dangling", in + "/jump/../x", in + "/loop",
		s.app + "/state2/../../svc/state/x", "state2/x", "", "./x", s.app + "/state2/\x00",
	} {
		if kept, dropped := s.rules().Filter([]string{p}); len(kept) != 0 || len(dropped) != 1 {
			t.Errorf("%q was kept as %q", p, kept)
		}
	}
	for p, want := range map[string]string{
		s.app + "/state2/x":       s.app + "/state2/x",
		s.app + "/state2/x/":      s.app + "/state2/x",
		s.app + "/state2/x/../x":  s.app + "/state2/x",
		s.app + "/state2//absent": s.app + "/state2/absent",
	} {
		if kept, dropped := s.rules().Filter([]string{p}); !slices.Equal(kept, []string{want}) {
			t.Errorf("%q: kept %q, dropped %v", p, kept, dropped)
		}
	}
}

// The private root may itself be named through a link.
func TestG03PrivateRootBehindALink(t *testing.T) {
	s := newTree(t)
	s.places.State = s.link(s.app+"/state", s.root+"/state-alias")
	rules := s.rules()
	rules.Roots = []string{"/"}
	for _, p := range []string{s.app + "/state/x", s.root + "/state-alias/x"} {
		if kept, _ := rules.Filter([]string{p}); len(kept) != 0 {
			t.Errorf("%q was kept", p)
		}
	}
}

func TestG05CredentialStore(t *testing.T) {
	s := newTree(t)
	rules := s.rules()
	rules.Roots = append(rules.Roots, s.home)
	gog := s.home + "/.config/agentworks/gog"
	if kept, _ := rules.Filter([]string{gog, gog + "/keyring"}); len(kept) != 0 {
		t.Errorf("kept %q", kept)
	}
	if _, err := os.Lstat(gog); err == nil {
		t.Error("the folder was made")
	}
	env := Slot([]string{"GOG_KEYRING_PASSWORD=x", "GOG_HOME=" + gog, "PATH=/bin"}, nil, []string{"GOG_ACCOUNT=mine"})
	if strings.Contains(strings.Join(env, "\n"), gog) || !slices.Contains(env, "GOG_ACCOUNT=mine") {
		t.Errorf("environment %q", env)
	}
}

func TestG06AbsoluteHostPaths(t *testing.T) {
	s := newTree(t)
	s.dir(s.root+"/srv/tools/bin", s.root+"/home/other")
	rules := s.rules()
	rules.Roots = append(rules.Roots, s.root+"/srv/tools")
	outside := []string{s.root + "/home/other", s.home, "/", "/etc/shadow", s.root + "/srv", s.app, s.app + "/slots/home/slot02", s.app + "/slots/run/slot01", s.docs + "2"}
	kept, dropped := rules.Filter(append(outside, s.root+"/srv/tools/bin", s.docs))
	if !slices.Equal(kept, []string{s.root + "/srv/tools/bin", s.docs}) || len(dropped) != len(outside) {
		t.Errorf("kept %q, dropped %v", kept, dropped)
	}
	// The docs root behind a link: both of its names are it.
	rules.Roots = []string{s.link(s.docs, s.root+"/docs")}
	kept, _ = rules.Filter([]string{s.docs + "/Workflow", s.root + "/docs/Workflow"})
	if len(kept) != 2 {
		t.Errorf("behind a link: kept %q", kept)
	}
}

func TestSessionPathsArePrivate(t *testing.T) {
	s := newTree(t)
	rules := s.rules()
	rules.Roots = []string{"/"}
	for _, places := range []Places{s.places, {ConfigHome: s.home + "/.config"}} {
		rules.Private = places.PrivateRoots()
		for _, session := range []string{"project-1--browser", "workflow-1--browser"} {
			if kept, _ := rules.Filter(places.SessionPaths(session)); len(kept) != 0 {
				t.Errorf("%s: kept %q", session, kept)
			}
		}
	}
	if got := s.places.SessionPaths("project-1--browser")[0]; got != s.app+"/state/browser-profile-projects/project-1--browser" {
		t.Errorf("profile %q", got)
	}
	for session, ok := range map[string]bool{"project-1--browser": true, "": false, "..": false, "a/b": false, "-x": false, "a b": false} {
		if (CheckSession(session) == nil) != ok {
			t.Errorf("CheckSession(%q) is not %v", session, ok)
		}
	}
}

func FuzzFilter(f *testing.F) {
	f.Add("/srv/svc/state/../state/x")
	f.Add("/srv/svc//data/docs/../../state")
	f.Fuzz(func(t *testing.T, p string) {
		r := Rules{Private: []string{"/srv/svc/state"}, Roots: []string{"/srv/svc"}}
		kept, dropped := r.Filter([]string{p})
		if len(kept)+len(dropped) != 1 {
			t.Fatalf("%q: kept %q, dropped %v", p, kept, dropped)
		}
		for _, k := range kept {
			if filepath.Clean(k) != k || !strings.HasPrefix(k+"/", "/srv/svc/") || strings.HasPrefix(k+"/", "/srv/svc/state/") {
				t.Fatalf("%q was kept as %q", p, k)
			}
		}
	})
}
