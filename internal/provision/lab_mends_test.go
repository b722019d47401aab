package provision

import (
	"slices"
	"strings"
	"testing"
)

// told are the lines of a run without those that say that all is as asked.
func told(out string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool { return strings.HasPrefix(line, "OK ") }), "\n")
}

// TestLabMends: what a slot should not have, by the host's own tools.
func TestLabMends(t *testing.T) {
	t.Parallel()
	h := newLabHost(t)
	h.provision()
	h.Sh(`groupadd docker; usermod -aG sudo,docker,adm slot01; echo slot02:pw | chpasswd; passwd -d slot03; sed -i 's/^slot04:x:/slot04::/' /etc/passwd; usermod -s /bin/bash slot05
chmod 0777 /srv/vs/slots/home/slot06 /etc/agentworks /etc/agentworks/slots.json /etc/agentworks/slots.json.lock /usr/local/libexec /usr/local/libexec/agentworks /usr/local/libexec/agentworks/*
chmod 2777 /srv/vs/slots/state/slot06 /srv/vs/slots/run/slot07
setfacl -m u:slot02:rwx /srv/vs/state /srv/vs/slots/home/slot08 /srv/vs/slots/state/slot08; setfacl -d -m u:slot02:rwx /srv/vs/slots/run/slot08
setfacl -m u:slot01:rw /etc/agentworks/slots.json /etc/agentworks/slots.json.lock
useradd -g slot09 bob; useradd -G slot09 eve`)
	before := h.everything()
	plan := told(h.provision("--plan"))
	uploads := func(p string) bool { return p == "/var/lib" } // the program that plans lies there while it starts
	if diff := before.Without(uploads).Diff(h.everything().Without(uploads)); len(diff) > 0 {
		t.Errorf("a plan changed %q", diff)
	}
	done := told(h.provision())
	for _, words := range []string{"slot01 out of the group sudo", "slot01 out of the group docker", "slot01 out of the group adm", "login shell of slot05", "lock the password of <slot> (3 slots)",
		"set /etc/agentworks to", "set /srv/vs/slots/home/slot06 to", "take the ACL from /srv/vs/slots/state/slot08", "take the ACL from /srv/vs/slots/run/slot08"} {
		if !strings.Contains(plan, words) || !strings.Contains(done, words) {
			t.Errorf("no %q in\n%s\n%s", words, plan, done)
		}
	}
	for _, words := range []string{"eve is in the group slot09", "bob is in the group slot09", "gpasswd -d eve slot09"} {
		if !strings.Contains(done, words) {
			t.Errorf("no %q in\n%s", words, done)
		}
	}
	if got := h.Sh("id -nG slot01; getent passwd slot05 | cut -d: -f7; awk -F: '/^slot/ && $2 !~ /^[!*]/' /etc/shadow; getfacl -sR /srv/vs/state /srv/vs/slots /etc/agentworks"); got != "slot01 slotshared\n/usr/sbin/nologin" {
		t.Error(got)
	}
	h.modes(map[string]string{
		"/etc/agentworks": "751 root:vs", "/etc/agentworks/slots.json": "640 root:vs", "/etc/agentworks/slots.json.lock": "600 root:root",
		"/usr/local/libexec": "755 root:root", "/usr/local/libexec/agentworks": "755 root:root", "/usr/local/libexec/agentworks/slotctl": "755 root:root",
		"/usr/local/libexec/agentworks/slotctl.json": "644 root:root", "/usr/local/libexec/agentworks/agentworks-deploy": "755 root:root",
		"/srv/vs/slots/home/slot06": "700 slot06:slot06", "/srv/vs/slots/state/slot06": "2770 vs:slot06", "/srv/vs/slots/run/slot07": "2770 vs:slot07",
		"/srv/vs/slots/home/slot08": "700 slot08:slot08", "/srv/vs/state": "700 vs:vs",
	})
	touched := h.ctimes()
	if out := h.provision(); !strings.Contains(out, "nothing to do") || h.ctimes() != touched {
		t.Error(out)
	}
	if !h.slotRuns("slot01") {
		t.Error("no command runs")
	}
}

// TestLabLowerCount: 12 slots, then 10. Nothing is lost, nothing is red, and the
// way to remove one by hand works.
func TestLabLowerCount(t *testing.T) {
	t.Parallel()
	h := newLabHost(t)
	h.provision("--set", "slots.count=12")
	h.Must("slots", "assign", "lab", "u1", "slot12", "--set", "slots.count=12")
	h.Sh("echo x > /srv/vs/slots/home/slot12/f; chown slot12 /srv/vs/slots/home/slot12/f; echo y > /srv/vs/slots/state/slot12/f")
	_, errs, code := h.Call("provision", "lab")
	if code != 1 || !strings.Contains(errs, "would lock out who holds slot12; nothing was changed; next: agentworks-deploy slots release lab <user> for each") || !strings.Contains(errs, "raise slots.count to 12") {
		t.Fatalf("exit %d: %s", code, errs)
	}
	out, _, code := h.Call("slots", "status", "lab")
	if code != 1 || !strings.Contains(out, "fix: agentworks-deploy slots release lab u1") {
		t.Errorf("exit %d: %s", code, out)
	}
	h.Must("slots", "release", "lab", "u1")
	if out := h.provision(); !strings.Contains(out, "above slots.count 10: slot11, slot12;") {
		t.Error(out)
	}
	touched := h.ctimes()
	if out := h.provision(); !strings.Contains(out, "nothing to do") || h.ctimes() != touched {
		t.Error(out)
	}
	out = h.Must("slots", "status", "lab")
	if !strings.Contains(out, "10 of 10 slots free and clean") || !strings.Contains(out, "above slots.count, not clean: 1 entry in home, 1 entry in state; u1 held it last") {
		t.Error(out)
	}
	if h.As("vs", "sudo -n -u slot12 /usr/local/libexec/agentworks/slotctl exec </dev/null 2>&1 | grep -v 'password is required'") {
		t.Error("a slot above the count runs commands")
	}
	h.provision("--set", "slots.count=12")
	h.Must("slots", "assign", "lab", "u1", "slot12", "--set", "slots.count=12")
	if got := h.Sh("cat /srv/vs/slots/home/slot12/f /srv/vs/slots/state/slot12/f"); got != "x\ny" {
		t.Errorf("something is lost: %q", got)
	}
	h.Must("slots", "release", "lab", "u1", "--set", "slots.count=12")
	h.Sh("userdel slot11; groupdel slot11; ! getent passwd slot11; ! getent group slot11")
	if out := h.provision(); !strings.Contains(out, "above slots.count 10: slot12;") {
		t.Error(out)
	}
	if out := h.provision(); !strings.Contains(out, "nothing to do") {
		t.Error(out)
	}
}

// TestLabSudoThatDoesNotAnswer: the rule is in its file, and nobody may use it.
func TestLabSudoThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	h := newLabHost(t)
	h.provision()
	for name, c := range map[string]struct{ breaks, heals, words string }{
		"not included":         {"cp -p /etc/sudoers /root/; sed -i /includedir/d /etc/sudoers", "cp -p /root/sudoers /etc/", "sudo -l -U vs shows"},
		"a later rule":         {"echo 'vs ALL=(ALL) ALL' > /etc/sudoers.d/zz; chmod 440 /etc/sudoers.d/zz", "rm /etc/sudoers.d/zz", "a password is required; next, on the host: sudo -l -U vs shows"},
		"a file's mode":        {"echo 'vs ALL=(ALL) ALL' > /etc/sudoers.d/zz; chmod 644 /etc/sudoers.d/zz", "rm /etc/sudoers.d/zz", "chmod 0440 /etc/sudoers.d/zz"},
		"no setuid bit":        {"chmod u-s /usr/bin/sudo", "chmod 4755 /usr/bin/sudo", "chmod 4755 /usr/bin/sudo"},
		"the account expired":  {"chage -E 0 vs", "chage -E -1 vs", "chage -E -1 vs"},
		"an immutable account": {"usermod -s /bin/sh slot03; chattr +i /etc/passwd", "chattr -i -a /etc/passwd", "next, on the host: chattr -i -a /etc/passwd, and the same again"},
		"an immutable folder":  {"chmod 700 /srv/vs/slots/state/slot05; chattr +i /srv/vs/slots/state/slot05", "chattr -i -a /srv/vs/slots/state/slot05", "chattr -i -a /srv/vs/slots/state/slot05, and the same again"},
	} {
		h.Sh(c.breaks)
		out, errs, code := h.Call("provision", "lab")
		if code != 1 || !strings.Contains(errs, c.words) {
			t.Errorf("%s: exit %d: %s%s", name, code, out, errs)
		}
		h.Sh(c.heals)
		h.provision()
		if !h.slotRuns("slot01") {
			t.Errorf("%s: no command runs", name)
		}
	}
}
