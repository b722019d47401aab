package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/sandbox/policy"
)

// ownRun lays a /run of the test's over the machine's, with a socket of a user
// manager, one of a system service and one of a docker, all open to everybody.
func ownRun(t *testing.T) (manager, service, docker string) {
	t.Helper()
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/run", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	user := fmt.Sprintf("/run/user/%d", slotID)
	for _, dir := range []string{user, "/run/dbus", "/run/resolver"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	manager, service, docker = user+"/bus", "/run/dbus/system_bus_socket", user+"/docker.sock"
	for _, name := range []string{manager, service, docker} {
		listen(t, name)
		if err := os.Chmod(name, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return manager, service, docker
}

// TestTheMachinesSocketsAreGone: whoever reaches the bus of the account's user
// manager is out of the sandbox, and Landlock does not hold it back before ABI 9.
func TestTheMachinesSocketsAreGone(t *testing.T) {
	w := newWorld(t)
	manager, service, docker := ownRun(t)
	for _, name := range []string{manager, service, docker} {
		// The control: a launcher that makes no mounts.
		w.probe(t, plainly, policy.Policy{ReadPaths: []string{w.dir}}, "connect", name).wants(t, 0, "ok\n")
	}
	everyStart(t, func(t *testing.T, how start) {
		p := private(policy.Policy{WritePaths: []string{w.dir}})
		for _, name := range []string{manager, service, docker, "/proc/self/root" + service, "/proc/thread-self/root" + manager} {
			w.probe(t, how, p, "connect", name).wants(t, 0, "ENOENT\n")
		}
		w.probe(t, how, p, "create", "/run/new").wants(t, 0, "EROFS\n")
		w.sh(t, how, p, "ls -A /run").wants(t, 0, "")
		// A policy that asks for one other mount is no way round it, nor one that
		// grants everything.
		for _, p := range []policy.Policy{
			{PrivatePTS: true},
			{ReadPaths: []string{"/"}, HiddenPaths: []string{w.path("absent")}},
			{WritePaths: []string{"/"}, PrivateTmp: true},
		} {
			w.probe(t, how, p, "connect", service).wants(t, 0, "ENOENT\n")
		}
	})
	// slotctl's namespace is there for every policy.
	w.probe(t, bySlotctl, policy.Policy{ReadPaths: []string{w.dir}}, "connect", service).wants(t, 0, "ENOENT\n")
}

func TestWhatIsGrantedInRunIsBoundBack(t *testing.T) {
	w := newWorld(t)
	_, service, _ := ownRun(t)
	dir := "/run/granted/deep"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	everyStart(t, func(t *testing.T, how start) {
		p := private(policy.Policy{WorkDir: dir, ReadPaths: []string{dir}})
		w.sh(t, how, p, "pwd; cat file; ls /run").wants(t, 0, dir+"\ntextgranted\n")
		w.probe(t, how, p, "connect", service).wants(t, 0, "ENOENT\n")
		w.probe(t, how, private(policy.Policy{ReadPaths: []string{service}}), "connect", service).wants(t, 0, "ok\n")
	})
}

// TestTheLinksOfEtcLeadIntoRun is what a host with systemd-resolved looks like.
func TestTheLinksOfEtcLeadIntoRun(t *testing.T) {
	w := newWorld(t)
	ownRun(t)
	if err := os.WriteFile("/run/resolver/stub.conf", []byte("nameserver 127.0.0.53\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("stub.conf", "/run/resolver/resolv.conf"); err != nil {
		t.Fatal(err)
	}
	// An /etc of the test's, since the machine's must stay.
	etc := w.mkdir(t, "etc")
	if err := os.Chown(etc, 0, 0); err != nil {
		t.Fatal(err)
	}
	w.link(t, "etc/resolv.conf", "../run/resolver/resolv.conf", 0)
	if err := unix.Mount(etc, "/etc", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount("/etc", unix.MNT_DETACH)
	everyStart(t, func(t *testing.T, how start) {
		w.sh(t, how, private(policy.Policy{}), "cat /etc/resolv.conf; ls /run /run/resolver; echo x >/etc/resolv.conf").
			wants(t, 2, "nameserver 127.0.0.53\n/run:\nresolver\n\n/run/resolver:\nresolv.conf\nstub.conf\n")
	})
}

func TestTheDockerOfTheAccountIsBoundBackWhereSlotctlGaveIt(t *testing.T) {
	w := newWorld(t)
	manager, service, docker := ownRun(t)
	for host, want := range map[string]string{
		"unix://" + docker:  "ok\n",
		"unix://" + manager: "ENOENT\n",
		"unix://" + service: "ENOENT\n",
		fmt.Sprintf("unix:///run/user/%d/../docker.sock", otherID): "ENOENT\n",
		docker: "ENOENT\n",
	} {
		inside := *w
		inside.env = append([]string{"DOCKER_HOST=" + host}, w.env...)
		everyStart(t, func(t *testing.T, how start) {
			inside.probe(t, how, private(policy.Policy{}), "connect", docker).wants(t, 0, want)
			inside.probe(t, how, private(policy.Policy{}), "connect", manager).wants(t, 0, "ENOENT\n")
		})
	}
}
