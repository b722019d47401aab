package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
)

// Where the kernel says whether it keeps user namespaces from programs without
// a profile, and which profiles it has.
const (
	restrictSysctl = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
	loadedProfiles = "/sys/kernel/security/apparmor/profiles"
)

// exceptions are the programs that make user namespaces for slots, by profile
// (case P-13).
func exceptions(l hosts.Layout) []setting {
	bin := func(name string) string { return path.Join(l.Releases(), "**/bin", name) }
	return []setting{
		{l.Product + "-slotctl", l.Slotctl()},
		{l.Product + "-launcher", bin(hosts.LauncherName)},
		{l.Product + "-deploy", bin("agentworks-deploy")},
		{l.Product + "-workspace", bin(l.Product + "-workspace")},
		{l.Product + "-workspace-security-test", bin("workspace-security.test")},
	}
}

// profileText gives each program user namespaces and changes nothing else.
func profileText(l hosts.Layout) []byte {
	var b bytes.Buffer
	b.WriteString("# Programs that start commands of slots in user namespaces of their own.\nabi <abi/4.0>,\n")
	for _, e := range exceptions(l) {
		fmt.Fprintf(&b, "\nprofile %s %s flags=(unconfined) {\n  userns,\n}\n", e.key, e.value)
	}
	return b.Bytes()
}

// apparmor installs and loads the exception, only where the kernel asks for one.
func (r *run) apparmor(ctx context.Context) (findings, error) {
	var f findings
	restricted, err := os.ReadFile(filepath.Join(r.sys.Proc, strings.TrimPrefix(restrictSysctl, "/proc/")))
	if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(restricted)) != "1" {
		f.right = "this kernel does not restrict user namespaces: no exception is needed"
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("read %s: %w", restrictSysctl, err)
	}
	if _, ok := r.sys.find("apparmor_parser"); !ok {
		return f, report.Coded(report.ExitState, "%s is 1, and the host has no apparmor_parser to make an exception with: install apparmor", restrictSysctl)
	}
	// The paths that the kernel compares are those after links.
	real := r.l
	real.App = r.real.App
	profile := rootFile(r.l.AppArmorProfile(), 0o644, profileText(real))
	if f, err = r.files(nil, []file{profile}); err != nil {
		return f, err
	}
	if len(f.list) == 0 && !r.loaded(real) {
		f.add("", "load %s into the kernel", profile.path)
	}
	f.apply = func(ctx context.Context) error { return r.installProfile(ctx, profile) }
	return f, nil
}

// loaded reports whether the kernel has all profiles, as far as it can be asked.
func (r *run) loaded(l hosts.Layout) bool {
	data, err := os.ReadFile(r.sys.at(loadedProfiles))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		name, _, _ := strings.Cut(line, " ")
		names[name] = true
	}
	for _, e := range exceptions(l) {
		if !names[e.key] {
			return false
		}
	}
	return true
}

// installProfile has the text parsed before it is put in place, and brings the
// old file back where the kernel does not take it.
func (r *run) installProfile(ctx context.Context, profile file) error {
	content, err := profile.open()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(content); err != nil {
		return err
	}
	if _, err := r.sys.tool(ctx, text.Bytes(), "apparmor_parser", "--skip-kernel-load", "--skip-cache"); err != nil {
		return report.Coded(report.ExitState, "the AppArmor exception does not parse, nothing was installed: %w", err)
	}
	old, err := r.sys.read(profile.path, configLimit)
	if err != nil {
		return err
	}
	if err := profile.put(r.sys); err != nil {
		return err
	}
	_, err = r.sys.tool(ctx, nil, "apparmor_parser", "--replace", r.sys.at(profile.path))
	if err == nil {
		return nil
	}
	if old != nil {
		err = errors.Join(err, rootFile(profile.path, 0o644, old).put(r.sys))
	} else if dir, name, openErr := safefs.OpenParent(r.sys.at(profile.path)); openErr == nil {
		err = errors.Join(err, dir.Remove(name), dir.Sync(), dir.Close())
	}
	return report.Coded(report.ExitState, "the kernel does not take the AppArmor exception, the old one is back: %w", err)
}
