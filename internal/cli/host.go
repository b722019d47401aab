package cli

import (
	"strings"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

// getenv reads the environment of this run; the last of two values counts.
func (a *app) getenv(name string) string {
	value := ""
	for _, kv := range a.environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// host loads the host file called name with all its layers.
func (a *app) host(name string) (*hosts.Loaded, error) {
	dir, _, err := hosts.Dir(a.hostsDir, a.environ, a.self)
	if err != nil {
		return nil, err
	}
	settings, err := a.settings()
	if err != nil {
		return nil, err
	}
	return hosts.Load(dir, name, a.environ, settings)
}

// settings are the values given with --set.
func (a *app) settings() ([]hosts.Setting, error) {
	var settings []hosts.Setting
	for _, s := range a.set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, report.Coded(report.ExitUsage, "--set %q is not key=value", s)
		}
		settings = append(settings, hosts.Setting{Key: key, Value: value, Flag: "--set"})
	}
	return settings, nil
}
