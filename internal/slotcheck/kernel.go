package slotcheck

import (
	"os"
	"path/filepath"
	"strings"

	"agentworks-deploy/internal/report"
)

// kernelFix is the way out where the launcher says that the host does not give
// it what it needs; nil where the text is about something else.
func (a *audit) kernelFix(line string) *report.Fix {
	switch {
	case strings.Contains(line, "namespace"):
		return a.namespaceFix()
	case strings.Contains(line, "Landlock") && !strings.Contains(line, "inspect"):
		return noFix(report.OnHost, "the kernel offers no usable Landlock: boot one of 6.2 or newer with landlock in its lsm= list")
	}
	return nil
}

// namespaceFix finds the switch that keeps slots from user namespaces (case
// P-13).
func (a *audit) namespaceFix() *report.Fix {
	switch {
	case a.sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return a.provisionFix()
	case a.sysctl("kernel/unprivileged_userns_clone") == "0":
		return hostFix("sysctl", "-w", "kernel.unprivileged_userns_clone=1")
	case a.sysctl("user/max_user_namespaces") == "0":
		return hostFix("sysctl", "-w", "user.max_user_namespaces=15000")
	}
	return noFix(report.OnHost, "something keeps slots from user namespaces or from mounts in them: a container's seccomp filter, a security module, or a limit in "+
		"/proc/sys/user; private /tmp needs both")
}

func (a *audit) sysctl(name string) string {
	text, err := os.ReadFile(filepath.Join(a.sys.Proc, "sys", name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
