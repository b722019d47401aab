package units

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func FuzzParseEnviron(f *testing.F) {
	f.Add([]byte("A=1\x00A=2\x00=x\x00B"))
	f.Fuzz(func(t *testing.T, data []byte) {
		seen := map[string]bool{}
		for _, a := range parseEnviron(data) {
			if seen[a.Name] || strings.Contains(a.Name, "=") {
				t.Fatalf("%q: %+v", data, a)
			}
			seen[a.Name] = true
		}
	})
}

func TestEnvFileThatIsNoFileIsAnErrorAtOnce(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), ".env")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	down := func(context.Context, string) (Running, error) { return Running{State: "inactive"}, nil }
	told, err := Environment(context.Background(), down, "/proc", "vs-agent.service", fifo)
	if err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%+v, %v", told, err)
	}
}

func TestParseStates(t *testing.T) {
	for in, want := range map[string]UnitState{
		"MainPID=12\nActiveState=active\nSubState=running\nLoadState=loaded\nNRestarts=3\nResult=success\n": {MainPID: 12, Active: "active", Sub: "running", Load: "loaded", Restarts: 3, Result: "success"},
		"ActiveState=inactive\nMainPID=0\n": {Active: "inactive"},
	} {
		got, err := parseStates(in)
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("parseStates(%q) = %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"MainPID=\n", "MainPID=-1\n", "MainPID=x\n", "no word\n", "ActiveState=active\n"} {
		if got, err := parseStates(in); err == nil {
			t.Errorf("parseStates(%q) = %+v, want an error", in, got)
		}
	}
}
