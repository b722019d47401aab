package provision

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"agentworks-deploy/internal/hosts"
)

// FuzzConfigKeepsWhatItDoesNotKnow: whatever stood in slotctl.json, the result is
// JSON with our keys, every other key is as it was (case P-10), and a second
// run changes nothing.
func FuzzConfigKeepsWhatItDoesNotKnow(f *testing.F) {
	f.Add([]byte(`{"slot_docker": true, "x": [1, {"y": null}], "slot_prefix": 7}`))
	f.Add([]byte(`{"a":1}{"b":2}`))
	f.Add([]byte("{\"\\u0061\":1,\"a\":2,\"\xff\":3}"))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, have []byte) {
		host := hosts.Host{Product: "vs"}
		r := &run{Request: Request{Host: host}, l: host.Layout()}
		want, replaced := r.config(have)
		var before, after map[string]any
		if err := json.Unmarshal(want, &after); err != nil {
			t.Fatalf("%q became %q: %v", have, want, err)
		}
		if again, replaced := r.config(want); replaced || !bytes.Equal(again, want) {
			t.Errorf("%q became %q and then %q", have, want, again)
		}
		if after["docs_root"] != "/srv/vs/data/docs" {
			t.Errorf("%q became %q", have, want)
		}
		if replaced || json.Unmarshal(have, &before) != nil {
			return
		}
		own := map[string]bool{}
		for _, s := range r.ownSettings() {
			own[s.key] = true
		}
		for key, value := range before {
			a, _ := json.Marshal(value)
			b, _ := json.Marshal(after[key])
			if !own[key] && !bytes.Equal(a, b) {
				t.Errorf("%q: %s became %s", key, a, b)
			}
		}
	})
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
