package launcher

import (
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/sandbox/policy"
)

// programFolders may be read, executed and listed by every command. Where they
// are links (a merged /usr), the links are followed (S8).
var programFolders = [...]string{"/bin", "/sbin", "/usr", "/lib", "/lib64", "/etc"}

// etcLinks are the files of /etc that are often links to somewhere else; what
// they point at is readable too.
var etcLinks = [...]string{
	"/etc/resolv.conf", "/etc/hosts", "/etc/hostname", "/etc/localtime", "/etc/nsswitch.conf",
	"/etc/ssl", "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/pki", "/etc/ca-certificates",
	"/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.cache", "/etc/alternatives",
}

// readableFacts is what programs ask the machine about. A rule on /proc/self is
// one on this very process: the command's children have no such rule.
var readableFacts = [...]string{
	"/proc/self", "/proc/thread-self",
	"/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/loadavg",
	"/proc/version", "/proc/filesystems", "/proc/cgroups",
	"/proc/sys/kernel/osrelease", "/proc/sys/kernel/ostype", "/proc/sys/kernel/version",
	"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/proc/sys/kernel/ngroups_max",
	"/proc/sys/kernel/cap_last_cap", "/proc/sys/kernel/random",
	"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/max_map_count", "/proc/sys/fs/file-max",
	"/proc/sys/fs/pipe-max-size", "/proc/sys/net/core/somaxconn",
	"/sys/devices/system/cpu", "/sys/devices/system/node",
}

var deviceNodes = [...]string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// systemGrants names what the launcher grants by itself. None of it has to
// exist.
func systemGrants(p *policy.Policy, env []string) []grant {
	var grants []grant
	add := func(kind grantKind, names ...string) {
		for _, name := range names {
			grants = append(grants, grant{name: name, kind: kind})
		}
	}
	add(read, programFolders[:]...)
	add(read, etcLinks[:]...)
	add(facts, readableFacts[:]...)
	add(device, deviceNodes[:]...)
	add(terminal, "/dev/tty")
	if p.PrivatePTS {
		add(terminal, "/dev/ptmx")
	}
	if name := ownDocker(env); name != "" {
		add(write, name) // what it takes to connect
	}
	if !p.BrowserScoped {
		add(write, sharedBrowserFolders(env)...)
	}
	return grants
}

// ownDocker returns the socket of the account's own docker where DOCKER_HOST
// says that the command has one. It is slotctl that says so to a slot; no other
// path is taken, or a caller could name any socket of the account.
func ownDocker(env []string) string {
	name := fmt.Sprintf("/run/user/%d/docker.sock", unix.Geteuid())
	if getenv(env, "DOCKER_HOST") != "unix://"+name {
		return ""
	}
	return name
}

// extraSystemPaths reads SANDBOX_EXTRA_SYSTEM_PATHS, the administrator's list
// of further folders with programs, separated by colons (L-14).
func extraSystemPaths(env []string) ([]string, error) {
	var folders []string
	for _, folder := range strings.Split(getenv(env, "SANDBOX_EXTRA_SYSTEM_PATHS"), ":") {
		if folder == "" {
			continue
		}
		if !strings.HasPrefix(folder, "/") {
			return nil, fmt.Errorf("SANDBOX_EXTRA_SYSTEM_PATHS: %q is not an absolute path", folder)
		}
		folders = append(folders, folder)
	}
	return folders, nil
}

// sharedBrowserFolders are the profiles and sockets of the platform's browsers,
// for a command that is not scoped to its own. A slot's command always is.
func sharedBrowserFolders(env []string) []string {
	configHome := getenv(env, "XDG_CONFIG_HOME")
	if home := getenv(env, "HOME"); configHome == "" && home != "" {
		configHome = path.Join(home, ".config")
	}
	bases := []string{getenv(env, "AGENT_BROWSER_SHARED_PROFILE"), getenv(env, "AGENT_BROWSER_PROFILE_ROOT")}
	if configHome != "" {
		bases = append(bases, path.Join(configHome, "agentworks/browser-profile"))
	}
	folders := []string{"/tmp/.agent-browser"}
	for _, base := range bases {
		if !strings.HasPrefix(base, "/") {
			continue
		}
		for _, suffix := range [...]string{"", "-users", "-workflows", "-projects"} {
			folders = append(folders, path.Clean(base)+suffix)
		}
	}
	return folders
}

// ownSharedMemory says whether the command gets a /dev/shm of its own: with a
// private /tmp, and where a write grant would otherwise open the machine's (S7).
func ownSharedMemory(p *policy.Policy) bool {
	if p.PrivateTmp {
		return true
	}
	for _, name := range p.WritePaths {
		if within("/dev/shm", path.Clean(name)) {
			return true
		}
	}
	return false
}

func getenv(env []string, name string) string {
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
