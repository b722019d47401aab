package slots

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const sampleConfig = `{
  "slot_prefix": "slot",
  "slot_docker": false,
  "allowed_exec": ["/srv/vs/releases/*/bin/video-studio-landlock-runner", "/usr/bin/tmux", "/usr/bin/chmod"],
  "allowed_cwd": ["/srv/vs/data/docs", "/srv/vs/slots"],
  "slot_run_root": "/srv/vs/slots/run",
  "slot_state_root": "/srv/vs/slots/state",
  "docs_root": "/srv/vs/data/docs",
  "slot_table": "/etc/agentworks/slots.json",
  "a_newer_key": [1]
}`

func TestC02AllowsProgram(t *testing.T) {
	c, err := ParseConfig([]byte(sampleConfig))
	if err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]bool{
		"/srv/vs/releases/r1/bin/video-studio-landlock-runner":         true,
		"/srv/vs/releases/x-0011aabb/bin/video-studio-landlock-runner": true,
		"/usr/bin/tmux": true,
		"/srv/vs/releases/a/b/bin/video-studio-landlock-runner": false,
		"/srv/vs/releases/bin/video-studio-landlock-runner":     false,
		"/srv/vs/releases//bin/video-studio-landlock-runner":    false,
		"/srv/vs/releases/../bin/video-studio-landlock-runner":  false,
		"/srv/vs/releases/./bin/video-studio-landlock-runner":   false,
		"/srv/vs/releases/r1/lib/video-studio-landlock-runner":  false,
		"/tmp/video-studio-landlock-runner":                     false,
		"/srv/vs/releases/r1/bin/video-studio-landlock-runner/": false,
		"srv/vs/releases/r1/bin/video-studio-landlock-runner":   false,
		"/bin/sh": false, "/bin/../bin/sh": false, "/usr/bin/../bin/tmux": false, "tmux": false, "": false,
	} {
		if got := c.AllowsProgram(program); got != want {
			t.Errorf("AllowsProgram(%q) = %v, want %v", program, got, want)
		}
	}
	if c.MaxCommands != DefaultMaxCommands || c.MaxProcesses != DefaultMaxProcesses {
		t.Errorf("max_commands = %d, max_processes = %d; want the defaults", c.MaxCommands, c.MaxProcesses)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for name, edit := range map[string][2]string{
		"prefix":         {`"slot_prefix": "slot"`, `"slot_prefix": "0day"`},
		"no run root":    {`"slot_run_root": "/srv/vs/slots/run",`, ``},
		"relative root":  {`"/srv/vs/slots/state"`, `"slots/state"`},
		"partial star":   {`/releases/*/bin`, `/releases/r*/bin`},
		"unclean exec":   {`/usr/bin/tmux`, `/usr/bin/../bin/tmux`},
		"relative cwd":   {`"/srv/vs/slots"]`, `"slots"]`},
		"wrong type":     {`"slot_docker": false`, `"slot_docker": "no"`},
		"negative count": {`"slot_docker": false`, `"max_commands": -1`},
		"negative bound": {`"slot_docker": false`, `"max_processes": -1`},
		"not JSON":       {`{`, `<`},
	} {
		if _, err := ParseConfig([]byte(strings.Replace(sampleConfig, edit[0], edit[1], 1))); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestC08LoadConfigWantsRootsFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, ConfigName)
	write := func(mode os.FileMode, uid int) {
		t.Helper()
		os.Remove(file)
		if err := os.WriteFile(file, []byte(sampleConfig), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, uid, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		mode os.FileMode
		uid  int
		ok   bool
	}{
		{"root 0644", 0o644, 0, true}, {"root 0600", 0o600, 0, true},
		{"group-writable", 0o664, 0, false}, {"world-writable", 0o666, 0, false}, {"another owner", 0o644, 70001, false},
	} {
		write(c.mode, c.uid)
		if _, err := LoadConfig(file); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	write(0o644, 0)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadConfig(file); err == nil {
		t.Error("a folder that everybody may write was accepted")
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	os.Remove(file)
	if err := os.Symlink("/etc/hostname", file); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadConfig(file); err == nil {
		t.Error("a link was accepted")
	}
	os.Remove(file)
	if _, err := LoadConfig(file); err == nil {
		t.Error("a missing file was accepted")
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(sampleConfig))
	f.Add([]byte(`{"slot_prefix":"s","slot_run_root":"/","slot_state_root":"/","allowed_exec":["/*"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err != nil {
			return
		}
		if !ValidPrefix(c.SlotPrefix) || c.MaxCommands < 1 || c.AllowsProgram("/bin/../bin/sh") || c.AllowsProgram("sh") {
			t.Fatalf("accepted %q", data)
		}
	})
}
