package slotcheck

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/units"
)

func TestV03RequiredKeysInFileAndProcess(t *testing.T) {
	const value = "canary-value"
	for name, c := range map[string]struct {
		file, process string
		want          report.State
		says          string
	}{
		"match":                     {"AUTH_SECRET='" + value + "'\r\nOTHER=1\n", "AUTH_SECRET=" + value, report.Pass, "1 key(s) stand once"},
		"twice":                     {"AUTH_SECRET=" + value + "\nAUTH_SECRET=" + value + "\n", "AUTH_SECRET=" + value, report.Fail, "AUTH_SECRET stands there 2 times"},
		"missing":                   {"#AUTH_SECRET=" + value + "\n", "AUTH_SECRET=" + value, report.Fail, "AUTH_SECRET is missing"},
		"process with an old value": {"AUTH_SECRET=" + value + "\n", "AUTH_SECRET=" + value + "-old", report.Fail, "started with another AUTH_SECRET"},
		"process without":           {"AUTH_SECRET=" + value + "\n", "OTHER=1", report.Fail, "started with another AUTH_SECRET"},
		"environment unreadable":    {"AUTH_SECRET=" + value + "\n", "", report.Error, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScratch(t)
			s.host.Env.Required = []string{"AUTH_SECRET"}
			s.host.Release.Services = []string{"vs-agent"}
			a := s.audit()
			a.sys.Unit = func(context.Context, string) (units.Running, error) {
				return units.Running{PID: 4242, State: "active"}, nil
			}
			s.write(a.layout.EnvFile(), 0o600, c.file)
			if c.process != "" {
				s.write(filepath.Join(s.sys.Proc, "4242/environ"), 0o400, c.process+"\x00")
			}
			rows := checkEnvRequired(context.Background(), a, subject{})
			if len(rows) != 1 || rows[0].State != c.want || !strings.Contains(rows[0].Detail, c.says) {
				t.Errorf("%v, want %s with %q", lines(rows), c.want, c.says)
			}
			if strings.Contains(fmt.Sprint(rows), value) {
				t.Errorf("the value is in %v", rows)
			}
		})
	}
	s := newScratch(t)
	if rows := checkEnvRequired(context.Background(), s.audit(), subject{}); rows != nil {
		t.Errorf("no key is required: %v", rows)
	}
}
