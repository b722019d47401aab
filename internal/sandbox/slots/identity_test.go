package slots_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"agentworks-deploy/internal/sandbox/slots"
)

func mkfifo(path string, gid int) error {
	if err := syscall.Mkfifo(path, 0o660); err != nil {
		return err
	}
	return os.Chown(path, svc, gid)
}

func TestU01Identity(t *testing.T) {
	w := newWorld(t)
	id := fmt.Sprint
	for _, c := range []struct {
		name string
		as   []string
		why  string
	}{
		{"root", []string{"--reuid", "0"}, "does not run as root"},
		{"the service", as(svc, groups(svc)), "is no slot"},
		{"no account", as(76555, "76555"), "has no account"},
		{"another real uid", []string{"--ruid", id(slot02), "--euid", id(slot01), "--regid", id(slot01), "--groups", id(slot01)}, "uid differ"},
		{"another gid", []string{"--reuid", id(slot01), "--regid", id(slot02), "--groups", id(slot01)}, "is not the group of slot01"},
		{"sudo -P from the service", as(slot01, groups(svc, slot01, slot02, shared)), "is the service's"},
		{"another slot's group", as(slot01, groups(slot01, slot02)), "is the group of slot02"},
	} {
		r := w.run(call{stdin: w.sh("echo ran"), as: c.as})
		if r.exit != 126 || !strings.Contains(r.stderr, "slotctl: refused: ") || !strings.Contains(r.stderr, c.why) || r.stdout != "" {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
	w.want(w.run(call{stdin: w.sh("exit 0"), as: as(slot01, groups(shared))}), 0, "")
	w.want(w.run(call{stdin: w.sh("exit 0"), as: as(slot02, groups(slot02, shared))}), 0, "")
}

func TestUserNamespaceIsTheSlotsOwn(t *testing.T) {
	w := newWorld(t)
	script := "id -u; id -g; cat /proc/self/uid_map; grep -E '^Cap(Eff|Amb|Prm)' /proc/self/status; readlink /proc/self/ns/mnt; umask"
	ns := w.request(func(r *slots.Request) { r.UserNS = true }, "/bin/sh", "-c", script)
	r := w.run(call{stdin: ns, before: "readlink /proc/self/ns/mnt &&"})
	lines := strings.Fields(strings.ReplaceAll(r.stdout, ":\t", "="))
	if r.exit != 0 || len(lines) != 11 {
		t.Fatalf("%+v", r)
	}
	const caps = "0000000000200100" // CAP_SYS_ADMIN, CAP_SETPCAP
	want := []string{"", id(slot01), id(slot01), id(slot01), id(slot01), "1", "CapPrm=" + caps, "CapEff=" + caps, "CapAmb=" + caps, "", "0007"}
	for i := range want {
		if want[i] != "" && lines[i] != want[i] {
			t.Errorf("line %d is %q, want %q", i, lines[i], want[i])
		}
	}
	if lines[0] == lines[9] {
		t.Error("the mount namespace is the caller's")
	}
	plain := w.run(call{stdin: w.sh("grep -E '^Cap(Eff|Amb|Prm)' /proc/self/status")})
	if strings.Contains(plain.stdout, "2") {
		t.Errorf("capabilities without userns: %q", plain.stdout)
	}
}

func id(n int) string { return fmt.Sprint(n) }

// Without user namespaces the command is refused, never run without (cases
// L-09, D-01).
func TestD01NoUserNamespaces(t *testing.T) {
	w := newWorld(t)
	inner := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 100000}}
	r := w.run(call{
		stdin:  w.request(func(r *slots.Request) { r.UserNS = true }, "/bin/sh", "-c", "echo ran"),
		before: "echo 0 >/proc/sys/user/max_user_namespaces &&",
		attr:   syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: inner, GidMappings: inner, GidMappingsEnableSetgroups: true},
	})
	w.want(r, 125, "SANDBOX_UNAVAILABLE: user namespace for slot01")
	if r.stdout != "" {
		t.Error("it ran")
	}
}

func TestR01ComponentThatRefuses(t *testing.T) {
	w := newWorld(t)
	runner := w.in("releases/r1/bin/runner")
	try := func(before string) result {
		return w.run(call{stdin: w.request(func(r *slots.Request) { r.UserNS = true }, runner, "--config", "x", "--", "/bin/true"), before: before})
	}
	w.want(try(""), 0, "")
	for _, d := range []string{"releases", "releases/r1", "releases/r1/bin"} {
		w.must(os.Chmod(w.in(d), 0o700))
		w.want(try(""), 127, fmt.Sprintf("slotctl: cannot start %s: %s is not traversable for slot01\n", runner, w.in(d)))
		w.must(os.Chmod(w.in(d), 0o711))
	}
	w.must(os.Chmod(runner, 0o700))
	w.want(try(""), 127, fmt.Sprintf("slotctl: cannot start %s: %s is not executable\n", runner, runner))
	w.must(os.Chmod(runner, 0o755))
	noexec := fmt.Sprintf("mount --bind %[1]s %[1]s && mount -o remount,bind,noexec %[1]s &&", w.in("releases"))
	w.want(try(noexec), 127, runner+" is on a noexec mount\n")
	w.must(os.Remove(runner))
	w.want(try(""), 127, runner+" does not exist\n")
	w.must(os.Mkdir(runner, 0o755))
	w.want(try(""), 127, runner+" is not a regular file\n")
	w.must(os.Remove(runner))
	// The folder behind a link is named, not the link.
	w.dir(w.in("closed/bin"), svc, svc, 0o711)
	w.file(w.in("closed/bin/runner"), "#!/bin/sh\n", svc, svc, 0o755)
	w.must(os.Chmod(w.in("closed"), 0o700))
	w.must(os.Symlink("../../../closed/bin/runner", runner))
	w.want(try(""), 127, w.in("closed")+" is not traversable for slot01\n")
	// A script whose interpreter is missing is reachable and still cannot start.
	w.must(os.Remove(runner))
	w.file(runner, "#!/nowhere/sh\n", svc, svc, 0o755)
	w.want(try(""), 127, "cannot start "+runner)
}

func TestSlotOf(t *testing.T) {
	w := newWorld(t)
	read := func() *slots.Accounts {
		a, err := slots.ReadAccounts(w.root+"/passwd", w.root+"/group")
		w.must(err)
		return a
	}
	same := func(n int, groups ...int) slots.Identity {
		return slots.Identity{RUID: n, EUID: n, SUID: n, RGID: n, EGID: n, SGID: n, Groups: groups}
	}
	if slot, err := read().SlotOf(same(slot01, slot01, shared), "slot", svc); slot != "slot01" {
		t.Error(slot, err)
	}
	if _, err := read().SlotOf(same(slot01), "cf", svc); err == nil {
		t.Error("a slot of another prefix was accepted")
	}
	passwd, err := os.ReadFile(w.root + "/passwd")
	w.must(err)
	// A slot's group that no group file names is still another slot's.
	w.file(w.root+"/group", "root:x:0:\n", 0, 0, 0o644)
	if _, err := read().SlotOf(same(slot01, slot02), "slot", svc); err == nil {
		t.Error("another slot's primary group was accepted")
	}
	w.file(w.root+"/passwd", string(passwd)+fmt.Sprintf("twin:x:%d:%d::/:/bin/sh\n", slot01, slot01), 0, 0, 0o644)
	if _, err := read().SlotOf(same(slot01), "slot", svc); err == nil {
		t.Error("a uid of two accounts was accepted")
	}
}
