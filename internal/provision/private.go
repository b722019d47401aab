package provision

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/sandbox/grants"
)

// envFileLimit bounds <app>/.env.
const envFileLimit = 1 << 20

// privateRoots are the service's folders that no slot ever gets: browser
// profiles and their sockets, and the app's state. Where the service keeps them
// is written in its environment: in <app>/.env, which may be newer than what
// runs, and in that of its processes. All of both count.
func (r *run) privateRoots() ([]string, error) {
	roots := []string{r.l.State()}
	settings := []map[string]string{{"HOME": r.l.Home}}
	var data []byte
	st, err := r.lstat(r.l.EnvFile())
	if err == nil && st.IsRegular() { // a link is followed by systemd and not by root
		if data, err = r.sys.read(r.l.EnvFile(), envFileLimit); err != nil {
			return nil, err
		}
	}
	lines, err := hosts.ParseEnvironmentFile(data)
	if err == nil { // else systemd refuses the file too, and no process has it
		file := map[string]string{"HOME": r.l.Home}
		for _, a := range lines {
			file[a.Name] = a.Value
		}
		settings = append(settings, file)
	}
	processes, err := accounts.Processes(r.sys.Proc, r.roster.service.UID)
	if err != nil {
		return nil, err
	}
	for _, p := range processes {
		env, err := environ(r.sys.Proc, p.PID)
		if err != nil {
			return nil, err
		}
		settings = append(settings, env)
	}
	for _, s := range settings {
		roots = append(roots, privateRootsOf(s, r.l.Docs)...)
	}
	for _, p := range roots { // the walk goes by the host file's name of the docs folder
		if within(r.real.Docs, p) {
			roots = append(roots, r.l.Docs+strings.TrimPrefix(p, r.real.Docs))
		}
	}
	return roots, nil
}

// environ reads what a process was started with; nothing when it is gone.
func environ(proc string, pid int) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "environ"))
	if err != nil && !accounts.Gone(err) {
		return nil, err
	}
	env := map[string]string{}
	for line := range bytes.SplitSeq(data, []byte{0}) {
		if key, value, ok := strings.Cut(string(line), "="); ok {
			env[key] = value
		}
	}
	return env, nil
}

// privateRootsOf asks the sandbox's own rule.
func privateRootsOf(env map[string]string, docs string) []string {
	absolute := func(p string) string {
		if path.IsAbs(p) {
			return p
		}
		return "" // no program of the platform could use it
	}
	config := absolute(env["XDG_CONFIG_HOME"])
	if home := absolute(env["HOME"]); config == "" && home != "" {
		config = path.Join(home, ".config")
	}
	return grants.Places{
		Docs:          docs,
		State:         absolute(env["AGENTWORKS_STATE_ROOT"]),
		SharedProfile: absolute(env["AGENT_BROWSER_SHARED_PROFILE"]),
		ProfileRoot:   absolute(env["AGENT_BROWSER_PROFILE_ROOT"]),
		ConfigHome:    config,
	}.PrivateRoots()
}
