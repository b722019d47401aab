package units

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestNeedsAreWhatAUnitNamesBelowTheLiveRelease(t *testing.T) {
	dir := t.TempDir()
	stub := `#!/bin/sh
case " $* " in
*" show "*) echo 'ExecStartPre={ path=/bin/mkdir ; argv[]=/bin/mkdir -p /run/x ; ignore_errors=no ; pid=0 }'
	echo 'ExecStart={ path=/usr/bin/node ; argv[]=/usr/bin/node /srv/vs/current/agent.mjs --root=/srv/vs/current/x ; ignore_errors=no ; pid=0 }'
	echo 'ExecStart={ path=/srv/vs/current/bin/vs-agent ; argv[]=/srv/vs/current/bin/vs-agent ; ignore_errors=no ; pid=0 }' ;;
*" cat "*) printf '# /x/vs-agent.service\n[Unit]\nConditionPathExists=/srv/vs/current/dropped\nConditionPathExists=\n ConditionPathExists = /srv/vs/current/bin/vs-agent\nConditionPathExists=!/srv/vs/current/stop\nAssertFileNotEmpty=/srv/vs/current/%%i\nConditionPathExists=/etc/hosts\n' ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	m := &Manager{Systemctl: filepath.Join(dir, "systemctl"), User: true, UID: 70001}
	got, err := m.Needs(context.Background(), "vs-agent.service", "/srv/vs/current")
	if want := []string{"agent.mjs", "bin/vs-agent"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	conditions, err := m.Conditions(context.Background(), "vs-agent.service")
	want := []string{"ConditionPathExists=/srv/vs/current/bin/vs-agent", "AssertFileNotEmpty=/srv/vs/current/%i", "ConditionPathExists=/etc/hosts"}
	if err != nil || !slices.Equal(conditions, want) {
		t.Errorf("%v %v, want %v", conditions, err, want)
	}
}
