package provision

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/lab/labtest"
)

// labHost is a lab with the reference platform, and its operator.
type labHost struct{ *labtest.Operator }

func newLabHost(t *testing.T) labHost {
	t.Helper()
	h := labHost{labtest.Operate(t, labtest.New(t, labtest.Reference()))}
	h.HostFile("lab", "vs", "slot", 10, "vs-workspace, vs-agent")
	return h
}

// provision is a run that must end with 0. It answers with the rows.
func (h labHost) provision(args ...string) string {
	h.T.Helper()
	return h.Must(append([]string{"provision", "lab"}, args...)...)
}

// everything is a full scan of what a run could change. The service manager's
// own files come and go.
func (h labHost) everything() labtest.Snapshot {
	h.T.Helper()
	return h.Snapshot(h.T, "/etc", "/srv", "/data", "/home", "/root", "/usr/local", "/var/lib", "/run/agentworks-deploy").Without(func(p string) bool {
		return strings.HasPrefix(p, "/var/lib/systemd/") && !strings.HasPrefix(p, "/var/lib/systemd/linger")
	})
}

// ctimes shows what was touched at all.
func (h labHost) ctimes() string {
	h.T.Helper()
	return h.Sh(`find /etc /srv /usr/local /var/lib/systemd/linger -printf '%p %C@\n' | sort`)
}

func (h labHost) modes(want map[string]string) {
	h.T.Helper()
	for p, mode := range want {
		if got := h.MustExec(h.T, "stat", "-c", "%a %U:%G", p); got != mode {
			h.T.Errorf("%s is %s, want %s", p, got, mode)
		}
	}
}

// slotRuns makes a real call through sudo and slotctl as the service.
func (h labHost) slotRuns(slot string) bool {
	h.T.Helper()
	socket := "/srv/vs/slots/run/" + slot + "/tmux.sock"
	h.Sh("setpriv --reuid " + slot + " --regid " + slot + " --clear-groups touch " + socket)
	request := fmt.Sprintf(`{"argv":["/usr/bin/chmod","660",%q],"cwd":"/srv/vs/slots/state/%s","env":[]}`, socket, slot)
	_, errs, code := h.Run(h.T, labtest.Cmd{User: "vs", Stdin: request,
		Argv: []string{"/usr/bin/sudo", "-n", "-u", slot, "/usr/local/libexec/agentworks/slotctl", "exec"}})
	h.Sh("rm " + socket)
	if code != 0 {
		h.T.Logf("as %s: exit %d: %s", slot, code, errs)
	}
	return code == 0
}

func TestLabProvision(t *testing.T) {
	t.Parallel()
	h := newLabHost(t)
	h.Sh("mkdir -p -m 755 /srv/vs/data/docs/_users/u9 && chown vs:vs /srv/vs/data/docs/_users/u9; useradd -M -N outsider; cp /etc/subuid /root/subuid")
	h.Sh("sed -i '/^HOME_MODE/d' /etc/login.defs; echo HOME_MODE 0750 >> /etc/login.defs") // case B07: ours are set, not inherited
	before := h.everything()
	if out := h.provision("--plan"); !strings.Contains(out, "PLANNED  sudo-rule") {
		t.Error(out)
	}
	// The program that plans lies in /var/lib while it starts.
	uploads := func(p string) bool { return p == "/var/lib" }
	if diff := before.Without(uploads).DiffTimes(h.everything().Without(uploads)); len(diff) > 0 {
		t.Errorf("a plan changed %q", diff)
	}
	h.provision()

	// P-09
	h.modes(map[string]string{
		"/srv/vs/slots": "711 vs:vs", "/srv/vs/slots/home": "711 vs:vs", "/srv/vs/slots/state": "711 vs:vs", "/srv/vs/slots/run": "711 vs:vs",
		"/srv/vs/slots/home/slot01": "700 slot01:slot01", "/srv/vs/slots/state/slot01": "2770 vs:slot01", "/srv/vs/slots/run/slot01": "2770 vs:slot01",
		"/srv/vs/slots/run/.sessions": "700 vs:vs", "/usr/local/libexec/agentworks": "755 root:root", "/usr/local/libexec/agentworks/slotctl": "755 root:root",
		"/usr/local/libexec/agentworks/slotctl.json": "644 root:root", "/usr/local/libexec/agentworks/agentworks-deploy": "755 root:root",
		"/etc/agentworks/slots.json": "640 root:vs", "/etc/agentworks": "751 root:vs", "/etc/sudoers.d/agentworks-slots": "440 root:root",
		"/srv/vs/data/docs/_users": "711 vs:vs", "/srv/vs/data/docs/_users/u9": "750 vs:vs", "/srv/vs/data/docs/config": "700 vs:vs",
	})
	if got := h.Sh("id -nG slot01"); got != "slot01 slotshared" {
		t.Errorf("slot01 is in %s", got)
	}
	if got := h.Sh("id -nG vs"); strings.Count(got, "slot") != 11 || !strings.Contains(got, "slotshared") {
		t.Errorf("vs is in %s", got)
	}
	if got := h.Sh("getent passwd slot10"); got != "slot10:x:70010:70010:AgentWorks slot:/srv/vs/slots/home/slot10:/usr/sbin/nologin" {
		t.Error(got)
	}
	if got := h.Sh("grep -c '^slot.*:!\\*:' /etc/shadow; cmp /etc/subuid /root/subuid"); got != "10" {
		t.Errorf("%s slots have a locked password", got)
	}
	// The manager started last, with all groups.
	if got := h.Sh(`systemctl is-active user@$(id -u vs).service; ls /var/lib/systemd/linger`); got != "active\nvs" {
		t.Error(got)
	}
	if got := h.Sh(`grep ^Groups: /proc/$(systemctl show -P MainPID user@$(id -u vs).service)/status | tr ' ' '\n' | grep -c '^700[01].$'`); got != "11" { // slotshared and 10 slots
		t.Errorf("the manager has %s groups", got)
	}

	// P-01, U-01 and the chain
	if got := h.Sh(`grep -c '"/srv/vs/data/docs"' /usr/local/libexec/agentworks/slotctl.json`); got != "2" {
		t.Error(got)
	}
	if !h.slotRuns("slot01") || !h.slotRuns("slot10") {
		t.Error("no command runs")
	}
	sudo := "sudo -n -u "
	for _, refused := range []string{
		sudo + "slot01 /usr/bin/id", sudo + "slot01 /usr/local/libexec/agentworks/slotctl", sudo + "slot01 /usr/local/libexec/agentworks/slotctl status",
		sudo + "root /usr/local/libexec/agentworks/slotctl exec", sudo + "outsider /usr/local/libexec/agentworks/slotctl exec", "sudo -n true",
	} {
		if _, errs, code := h.ExecAs(t, "vs", "/bin/sh", "-c", refused); code == 0 || !strings.Contains(errs, "password is required") {
			t.Errorf("%s: exit %d, %s", refused, code, errs)
		}
	}
	if h.As("slot01", "sudo -n -u slot02 /usr/local/libexec/agentworks/slotctl exec </dev/null") {
		t.Error("a slot may use sudo")
	}
	h.Sh("visudo -c")

	// P-08
	for _, p := range []string{"_users", "_users/u9", "config"} {
		if h.As("slot01", "ls /srv/vs/data/docs/"+p) {
			t.Errorf("slot01 lists %s", p)
		}
	}

	// P-07
	h.Sh(`cd /srv/vs/data/docs/Workflow; setpriv --reuid vs --regid vs --init-groups sh -c 'umask 022; mkdir -m 770 w && chgrp vs w && echo x > w/f && chmod 640 w/f'`)
	if !h.As("slot01", "cat /srv/vs/data/docs/Workflow/w/f") || h.As("outsider", "cat /srv/vs/data/docs/Workflow/w/f") {
		t.Error(h.Sh("getfacl -p /srv/vs/data/docs/Workflow/w /srv/vs/data/docs/Workflow/w/f"))
	}
	if got := h.Sh("getfacl -cdp /srv/vs/data/docs/Workflow"); !strings.Contains(got, "group:slotshared:rwx") {
		t.Error(got)
	}

	// P-05, P-10
	h.Sh(`echo '{"slots":{"slot01":"u1"}}' > /etc/agentworks/slots.json; rm /etc/sudoers.d/agentworks-slots; sed -i 's/"slot_docker": false/"slot_docker": true/' /usr/local/libexec/agentworks/slotctl.json`)
	h.provision()
	if got := h.Sh("cat /etc/agentworks/slots.json"); got != `{"slots":{"slot01":"u1"}}` || !h.slotRuns("slot01") {
		t.Error(got)
	}
	h.Sh("grep -q '\"slot_docker\": true' /usr/local/libexec/agentworks/slotctl.json; rm /usr/local/libexec/agentworks/slotctl.json")
	h.provision()
	if !h.slotRuns("slot02") {
		t.Error("no command runs")
	}

	// Nothing to do.
	touched := h.ctimes()
	if out := h.provision(); !strings.Contains(out, "provision: nothing to do") {
		t.Error(out)
	}
	if after := h.ctimes(); after != touched {
		t.Errorf("touched:\n%s", linesOnlyIn(touched, after))
	}
}

// linesOnlyIn is the lines of b that a does not have.
func linesOnlyIn(a, b string) string {
	var lines []string
	have := strings.Split(a, "\n")
	for line := range strings.SplitSeq(b, "\n") {
		if !slices.Contains(have, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func TestLabRefusalsChangeNothing(t *testing.T) {
	t.Parallel()
	h := newLabHost(t)
	h.HostFile("half", "missing", "slot", 10, "missing-workspace")
	h.HostFile("space", "vs", "slot", 10, "vs-workspace")
	text, _ := os.ReadFile(filepath.Join(h.Hosts, "space.yaml"))
	if err := os.WriteFile(filepath.Join(h.Hosts, "space.yaml"), bytes.Replace(text, []byte("app: /srv/vs,"), []byte(`app: "/srv/agent works",`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, setup string
		host        string
		code        int
		words       []string
	}{
		{"P03", "useradd -M -d /elsewhere slot07", "lab", 1, []string{"slot07", "/elsewhere"}},
		{"B01", "userdel slot07; echo root:65536:1000000 > /etc/subuid", "lab", 1, []string{"slot01", "/etc/subuid", "slots.ids"}},
		{"login.defs", ": > /etc/subuid; sed -i 's/^GID_MAX.*/GID_MAX 70100/' /etc/login.defs", "lab", 1, []string{"GID_MAX", "/etc/login.defs"}},
		{"B45", ":", "space", 2, []string{"agent works"}},
		{"B05", ":", "lab --set slots.prefix=0day", 2, []string{"0day"}},
		{"platform", ":", "half", 1, []string{"not installed", "service account missing", "/srv/missing", "missing-workspace.service", "lab up --name"}},
		{"a unit", "mv /srv/vs/home/.config/systemd/user/vs-agent.service /root/unit", "lab", 1, []string{"the platform here is not whole", "missing: the unit vs-agent.service (in /srv/vs/home/.config/systemd/user): put it back", "lab reset --name"}},
		{"no app", "mv /root/unit /srv/vs/home/.config/systemd/user/vs-agent.service; mv /srv/vs /srv/away", "lab", 1, []string{"not whole", "the app folder /srv/vs"}},
		{"broken sudoers", "mv /srv/away /srv/vs; sed -i 's/^GID_MAX.*/GID_MAX 60000/' /etc/login.defs; rm -f /usr/sbin/visudo", "lab", 1, []string{"visudo"}},
	} {
		h.Sh(c.setup)
		before := h.everything()
		for _, plan := range []string{"", "--plan"} {
			args := strings.Fields("provision " + c.host + " " + plan)
			out, errs, code := h.Call(args...)
			if code != c.code || strings.Count(errs, "\n") > 2 {
				t.Errorf("%s: %q: exit %d\n%s%s", c.name, args, code, out, errs)
			}
			for _, w := range c.words {
				if !strings.Contains(errs, w) {
					t.Errorf("%s: %q does not name %s: %s", c.name, args, w, errs)
				}
			}
		}
		diff := slices.DeleteFunc(before.Diff(h.everything()), func(line string) bool { return strings.HasPrefix(line, "/run/agentworks-deploy") })
		if len(diff) > 0 {
			t.Errorf("%s changed %q", c.name, diff)
		}
	}
}

// TestLabTwoProducts: at the same time, and again one after another.
func TestLabTwoProducts(t *testing.T) {
	t.Parallel()
	h := newLabHost(t)
	h.HostFile("second", "conf", "cf", 10, "conf-workspace")
	h.Sh(`useradd --system --user-group --home-dir /srv/conf/home conf; install -d -o conf -g conf /srv/conf /srv/conf/home/.config/systemd/user
echo > /srv/conf/home/.config/systemd/user/conf-workspace.service`)
	var both sync.WaitGroup
	for _, name := range []string{"lab", "second"} {
		both.Go(func() {
			if out, err := h.Command("000", "provision", name).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		})
	}
	both.Wait()
	a, b := h.Sh("id -u slot01"), h.Sh("id -u cf01")
	if !slices.Contains([]string{"70001 71001", "71001 70001"}, a+" "+b) {
		t.Errorf("slot01 has %s, cf01 has %s", a, b)
	}
	h.modes(map[string]string{
		"/etc/agentworks/conf": "750 root:conf", "/etc/agentworks/conf/slots.json": "640 root:conf",
		"/usr/local/libexec/agentworks/conf/slotctl": "755 root:root", "/etc/sudoers.d/agentworks-slots-conf": "440 root:root",
		"/srv/conf/slots/home/cf10": "700 cf10:cf10",
	})
	for _, name := range []string{"lab", "second", "lab", "second"} {
		if out, errs, code := h.Call("provision", name); code != 0 {
			t.Errorf("%s: exit %d: %s%s", name, code, out, errs)
		}
		h.modes(map[string]string{"/etc/agentworks": "751 root:vs", "/etc/agentworks/slots.json": "640 root:vs"})
	}
	if !h.slotRuns("slot01") {
		t.Error("no command runs")
	}
	// One product's service cannot use the other's slots.
	_, errs, code := h.ExecAs(t, "conf", "/usr/bin/sudo", "-n", "-u", "slot01", "/usr/local/libexec/agentworks/slotctl", "exec")
	if code == 0 || !strings.Contains(errs, "password is required") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestLabP11: a manager that runs already is told about, and not touched.
func TestLabP11ManagerWithOldGroups(t *testing.T) {
	t.Parallel()
	h := newLabHost(t)
	h.Sh("loginctl enable-linger vs && systemctl start user@$(id -u vs).service")
	uid := h.Sh("id -u vs")
	pid := h.Sh("systemctl show -P MainPID user@" + uid + ".service")
	out := h.provision()
	if !strings.Contains(out, "WARN service-groups systemd (pid "+pid) || !strings.Contains(out, "systemctl restart 'user@"+uid+".service'") {
		t.Error(out)
	}
	if now := h.Sh("systemctl show -P MainPID user@" + uid + ".service"); now != pid {
		t.Error("the manager was restarted")
	}
	h.Sh("systemctl restart user@" + uid + ".service")
	if out := h.provision(); !strings.Contains(out, "OK       service-groups") {
		t.Error(out)
	}
}

func TestLabManySlotsAndNoSysusers(t *testing.T) {
	t.Parallel()
	h := newLabHost(t)
	h.Sh("mv $(command -v systemd-sysusers) /root/; echo 'root:1000000:1000000000' > /etc/subuid; cp /etc/subuid /root/subuid")
	h.provision("--set", "slots.count=3")
	h.Sh("cmp /etc/subuid /root/subuid")
	if got := h.Sh("getent passwd slot03; id -nG slot03; id -nG vs | grep -o 'slot.*'"); got != "slot03:x:70003:70003:AgentWorks slot:/srv/vs/slots/home/slot03:/usr/sbin/nologin\nslot03 slotshared\nslotshared slot01 slot02 slot03" {
		t.Error(got)
	}
	if !h.slotRuns("slot03") {
		t.Error("no command runs")
	}
	h.Sh("mv /root/systemd-sysusers /usr/bin/")
	h.provision("--set", "slots.count=500")
	if !h.slotRuns("slot500") {
		t.Error("no command runs")
	}
	touched := h.ctimes()
	h.provision("--set", "slots.count=500")
	if h.ctimes() != touched {
		t.Error("something was touched")
	}

	// The other forms of the rule, read by the real sudo.
	h.provision("--set", "slots.count=3", "--set", "slots.sudo=direct", "--set", "slots.request_file=true")
	if got := h.Sh("tail -3 /etc/sudoers.d/agentworks-slots; visudo -c"); !strings.Contains(got, "!use_pty, !pam_session, !pam_setcred\n") || !strings.Contains(got, "slotctl exec --request-file *\n") {
		t.Error(got)
	}
	if !h.slotRuns("slot03") || h.As("vs", "sudo -n -u slot04 /usr/local/libexec/agentworks/slotctl exec </dev/null") {
		t.Error("the rule offers too little or too much")
	}
}

// TestLabAccountLock: whoever holds the account files is named, in time, and
// nothing hangs.
func TestLabAccountLock(t *testing.T) {
	t.Parallel()
	h := newLabHost(t)
	var fd int
	if err := h.In(func() (err error) {
		fd, err = unix.Open("/etc/.pwd.lock", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	out, errs, code := h.Call("provision", "lab")
	if code != 4 || !strings.Contains(errs, "/etc/.pwd.lock is held by") || time.Since(began) > 2*lockPatience {
		t.Errorf("exit %d after %s: %s%s", code, time.Since(began), out, errs)
	}
}
