package grants

import (
	"slices"
	"strings"
	"testing"
)

func names(env []string) []string {
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		out = append(out, name)
	}
	return out
}

func TestS34AllowListOfASlot(t *testing.T) {
	gone := []string{
		"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "KUBECONFIG", "AWS_PROFILE", "GIT_ASKPASS", "LD_PRELOAD", "LD_LIBRARY_PATH",
		"BASH_ENV", "ENV", "PYTHONSTARTUP", "NODE_OPTIONS", "AUTH_SECRET", "ACCESS_PASSWORD", "SUPABASE_URL", "GLOBAL_SECRET_X",
		"VAULT_ADDR", "CAPLAYER_SERVICE_TOKEN", "GOG_HOME", "NPM_TOKEN", "npm_config__authToken", "NPM_CONFIG_authToken", "UV_PUBLISH_PASSWORD",
		"PIP_SECRET_X", "CARGO_REGISTRY_AUTH", "GIT_CONFIG_VALUE_0", "GIT_CONFIG_PARAMETERS", "AGENTWORKS_STATE_ROOT", "path",
	}
	stays := []string{
		"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "DOCKER_HOST", "GIT_AUTHOR_NAME", "PIP_INDEX_URL", "PYTHONPATH", "PYTHONUTF8",
		"NPM_CONFIG_CACHE", "NODE_ENV", "UV_CACHE_DIR", "CARGO_HOME", "XDG_CACHE_HOME", "LC_ALL", "TERM", "TERM_PROGRAM",
	}
	var parent []string
	for _, n := range slices.Concat(gone, stays) {
		parent = append(parent, n+"=v")
	}
	got := names(Slot(parent, nil, nil))
	for _, n := range gone {
		if slices.Contains(got, n) && !strings.HasPrefix(n, "GIT_CONFIG_VALUE_") {
			t.Errorf("%s came along", n)
		}
	}
	for _, n := range stays {
		if !slices.Contains(got, n) {
			t.Errorf("%s is missing", n)
		}
	}
}

func TestSlotEnvironmentOrder(t *testing.T) {
	env := Slot([]string{"HOME=/srv/svc/home", "TZ=UTC", "PATH=/bin", "broken", "=x"}, []string{"HOME=/slot"}, []string{"PATH=/own", "LD_PRELOAD=asked", "NPM_TOKEN=asked"})
	want := []string{
		"TZ=UTC", "HOME=/slot", "PATH=/own", "LD_PRELOAD=asked", "NPM_TOKEN=asked",
		"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*", "GIT_CONFIG_KEY_1=core.hooksPath", "GIT_CONFIG_VALUE_1=/dev/null",
		"GIT_CONFIG_KEY_2=core.fsmonitor", "GIT_CONFIG_VALUE_2=false", "GIT_CONFIG_COUNT=3",
	}
	if !slices.Equal(env, want) {
		t.Errorf("got  %q\nwant %q", env, want)
	}
}

func TestGitSettingsFollowTheRequestsOwn(t *testing.T) {
	own := []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_VALUE_0=/evil"}
	env := Slot([]string{"GIT_CONFIG_COUNT=7"}, nil, own)
	for _, want := range []string{"GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_KEY_2=core.hooksPath", "GIT_CONFIG_VALUE_2=/dev/null", "GIT_CONFIG_COUNT=4"} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is missing in %q", want, env)
		}
	}
	for _, count := range []string{"x", "-1", ""} {
		if env := Slot(nil, nil, []string{"GIT_CONFIG_COUNT=" + count}); !slices.Contains(env, "GIT_CONFIG_COUNT=3") {
			t.Errorf("count %q: %q", count, env)
		}
	}
}

func TestScrub(t *testing.T) {
	env := Scrub([]string{
		"AUTH_SECRET=1", "ACCESS_PASSWORD=1", "GOG_KEYRING_PASSWORD=1", "ADMIN_USERS=1", "AUTH_ALLOWED_EMAILS=1", "CAPLAYER_SERVICE_TOKEN=1",
		"CAPLAYER_SERVICE_TOKEN_FILE=1", "SSH_AUTH_SOCK=1", "SUPABASE_KEY=1", "GLOBAL_SECRET_A=1", "VAULT_TOKEN=1", "EXTRA=1", "MORE=1", "PIP_INDEX_URL=1",
		"AGENTWORKS_CLI_ENV_DENY=EXTRA,MORE PIP_INDEX_URL", "PATH=/bin", "AUTH_SECRETS=kept",
	})
	if got := names(env); !slices.Equal(got, []string{"AGENTWORKS_CLI_ENV_DENY", "PATH", "AUTH_SECRETS"}) {
		t.Errorf("kept %q", got)
	}
	if got := names(Slot([]string{"AGENTWORKS_CLI_ENV_DENY=PIP_INDEX_URL", "PIP_INDEX_URL=https://user:word@host"}, nil, nil)); slices.Contains(got, "PIP_INDEX_URL") {
		t.Error("a denied name passed the allow-list")
	}
}
