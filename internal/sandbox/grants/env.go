package grants

import (
	"slices"
	"strconv"
	"strings"
)

// Scrub removes what a confined program must not see of its parent's
// environment: the platform's secrets by name and prefix, and the names that
// AGENTWORKS_CLI_ENV_DENY in env lists.
func Scrub(env []string) []string {
	deny := []string{
		"AUTH_SECRET", "ACCESS_PASSWORD", "GOG_KEYRING_PASSWORD", "ADMIN_USERS", "AUTH_ALLOWED_EMAILS",
		"CAPLAYER_SERVICE_TOKEN", "CAPLAYER_SERVICE_TOKEN_FILE", "SSH_AUTH_SOCK",
	}
	more, _ := lookup(env, "AGENTWORKS_CLI_ENV_DENY")
	deny = append(deny, strings.FieldsFunc(more, func(c rune) bool { return strings.ContainsRune(",:; \t\n", c) })...)
	return only(env, func(name string) bool {
		return !slices.Contains(deny, name) && !hasPrefix(name, "SUPABASE_", "GLOBAL_SECRET_", "VAULT_")
	})
}

// Slot is the environment of a slot's shell: of parent only what the allow-list
// names (a list of what to deny always misses one, case S34), then facts, then
// the request's own variables, each list overriding the one before, then git's
// settings.
func Slot(parent, facts, own []string) []string {
	env := only(Scrub(parent), allowed)
	for _, list := range [][]string{facts, own} {
		for _, e := range list {
			env = set(env, e)
		}
	}
	return withGit(env)
}

// allowed is the allow-list of a slot's shell.
func allowed(name string) bool {
	switch name {
	case "GIT_ASKPASS", "PYTHONSTARTUP", "NODE_OPTIONS", "BASH_ENV":
		return false
	case "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "LANG", "LANGUAGE", "TZ", "TMPDIR", "DOCKER_HOST":
		return true
	}
	upper := strings.ToUpper(name)
	for _, secret := range []string{"TOKEN", "PASSWORD", "SECRET"} {
		if strings.Contains(upper, secret) {
			return false
		}
	}
	// git's numbered settings carry credentials in values whose names do not say so.
	if strings.HasSuffix(upper, "_AUTH") || hasPrefix(name, "LD_", "GIT_CONFIG_") {
		return false
	}
	return hasPrefix(name, "GIT_", "PIP_", "PYTHON", "NPM_", "NODE_", "UV_", "CARGO_", "XDG_", "LC_", "TERM")
}

// withGit appends the settings that git has in a slot. The user's trees belong
// to the service's account or the slot's, and a repository is not to run
// programs just by being looked at. They come after the request's own, and the
// later setting wins.
func withGit(env []string) []string {
	const count = "GIT_CONFIG_COUNT"
	n := 0
	if v, ok := lookup(env, count); ok {
		n, _ = strconv.Atoi(v) // git refuses a bad count; ours replaces it
		n = max(n, 0)
	}
	for _, kv := range [][2]string{{"safe.directory", "*"}, {"core.hooksPath", "/dev/null"}, {"core.fsmonitor", "false"}} {
		i := strconv.Itoa(n)
		env = set(env, "GIT_CONFIG_KEY_"+i+"="+kv[0])
		env = set(env, "GIT_CONFIG_VALUE_"+i+"="+kv[1])
		n++
	}
	return set(env, count+"="+strconv.Itoa(n))
}

func lookup(env []string, name string) (string, bool) {
	for _, e := range env {
		if k, v, ok := strings.Cut(e, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// set puts entry at the end and removes every other one of its name.
func set(env []string, entry string) []string {
	name, _, _ := strings.Cut(entry, "=")
	return append(only(env, func(n string) bool { return n != name }), entry)
}

func only(env []string, keep func(name string) bool) []string {
	out := make([]string, 0, len(env))
	for _, e := range env {
		if name, _, ok := strings.Cut(e, "="); ok && name != "" && keep(name) {
			out = append(out, e)
		}
	}
	return out
}

func hasPrefix(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
