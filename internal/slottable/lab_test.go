package slottable

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"agentworks-deploy/internal/lab/labtest"
)

// labHost is a provisioned lab with the reference platform, and its operator.
type labHost struct{ *labtest.Operator }

// sharedLab is the package's lab, provisioned by whoever comes first and with
// an empty table.
func sharedLab(t *testing.T) labHost {
	t.Helper()
	h := labHost{labtest.Operate(t, labtest.Shared(t, labtest.Reference()))}
	h.HostFile("box", "vs", "slot", 20, "vs-workspace, vs-agent")
	h.Must("provision", "box")
	h.Sh(`printf '{"slots":{},"note":"kept"}\n' > /etc/agentworks/slots.json; rm -f /etc/agentworks/slots.history.json
		find /srv/vs/slots/home /srv/vs/slots/state /srv/vs/slots/run -mindepth 2 ! -path '*/.sessions*' -delete; chown -R vs:vs /srv/vs/data/docs/_users/u*`)
	return h
}

func (h labHost) fails(code int, words string, args ...string) {
	h.T.Helper()
	out, errs, got := h.Call(args...)
	if got != code || !strings.Contains(errs, words) || strings.Count(errs, "\n") > 3 {
		h.T.Errorf("%q: exit %d, want %d and %q\n%s%s", args, got, code, words, out, errs)
	}
}

func (h labHost) everything() labtest.Snapshot {
	h.T.Helper()
	return h.Snapshot(h.T, "/etc", "/srv", "/data", "/usr/local/libexec", "/var/lib/agentworks-deploy", "/run/agentworks-deploy")
}

func TestLabReleaseAndAssignKeepTheTable(t *testing.T) {
	h := sharedLab(t)
	h.Must("slots", "assign", "box", "u1")
	h.Must("slots", "assign", "box", "u2")
	for range 3 {
		for _, verb := range [][]string{{"release", "box", "u1"}, {"assign", "box", "u1", "slot01"}} {
			h.Must(append([]string{"slots"}, verb...)...)
			if got := h.Sh("stat -c '%U:%G %a' /etc/agentworks/slots.json"); got != "root:vs 640" {
				t.Errorf("after %s: %s", verb[0], got)
			}
			if !h.As("vs", "grep -q kept /etc/agentworks/slots.json") {
				t.Errorf("after %s vs does not read the table, or the key is gone", verb[0])
			}
		}
	}

	tree := "/srv/vs/data/docs/_users/u1"
	project := tree + "/Chats/Work/projects/u1crew"
	for account, can := range map[string]bool{"slot01": true, "vs": true, "slot02": false} {
		if h.As(account, "ls "+tree+" && cat "+project+"/own.txt && touch "+project+"/by-"+account) != can {
			t.Errorf("%s works in u1's tree: %v", account, !can)
		}
	}
	h.Must("slots", "release", "box", "u1")
	if h.As("slot01", "ls "+tree) || !h.As("vs", "cat "+project+"/by-slot01") {
		t.Error("the tree was not given back")
	}
	if h.As("vs", "cat /etc/agentworks/slots.history.json") || !strings.Contains(h.Sh("cat /etc/agentworks/slots.history.json"), `"u1"`) {
		t.Error("the note is wrong, or open")
	}
}

func TestLabT12AProcessKeepsASlotUnclean(t *testing.T) {
	h := sharedLab(t)
	h.Must("slots", "assign", "box", "u1", "slot03")
	h.Sh("setpriv --reuid slot03 --regid slot03 --clear-groups sleep 600 >/dev/null 2>&1 & echo $! > /run/sleeper; sleep 0.1")
	if out := h.Must("slots", "release", "box", "u1"); !strings.Contains(out, "left in place: 1 process") {
		t.Error(out)
	}
	h.fails(1, "slot03 is free but not clean: 1 process; u1 held it last", "slots", "assign", "box", "u2", "slot03")
	var status struct {
		V     int
		Slots []struct {
			Slot, Last string
			Processes  int
		}
	}
	if err := json.Unmarshal([]byte(h.Must("slots", "status", "box", "--format", "json")), &status); err != nil {
		t.Fatal(err)
	}
	if s := status.Slots[2]; status.V != 1 || s.Slot != "slot03" || s.Last != "u1" || s.Processes != 1 {
		t.Errorf("%+v", status.Slots)
	}
	h.Sh("kill $(cat /run/sleeper); while kill -0 $(cat /run/sleeper) 2>/dev/null; do :; done")
	h.Must("slots", "assign", "box", "u2", "slot03")
	out := h.Must("slots", "status", "box")
	for _, words := range []string{"slot03", "u2", "root:vs 0640", "19 of 20 slots free and clean"} {
		if !strings.Contains(out, words) {
			t.Errorf("no %q in\n%s", words, out)
		}
	}
}

func TestLabRefusals(t *testing.T) {
	h := sharedLab(t)
	h.Must("slots", "assign", "box", "u1")
	before := h.everything()
	h.fails(1, "slot01 is held by u1", "slots", "assign", "box", "u2", "slot01")
	h.fails(1, "u2 holds no slot", "slots", "release", "box", "u2")
	h.fails(2, "is not a user id", "slots", "assign", "box", "u1;id")
	h.fails(2, "is not a user id", "slots", "release", "box", "../u1")
	h.fails(2, "is no slot of this host", "slots", "assign", "box", "u2", "slot99")
	h.fails(2, "", "slots", "assign", "box", "u2", "slot02", "slot03")
	h.fails(2, "", "slots", "assign", "nowhere", "u2")
	h.fails(2, "no format", "slots", "status", "box", "--format", "html")
	h.Must("slots", "assign", "box", "u2", "--plan")
	h.Must("slots", "release", "box", "u1", "--plan")
	if diff := before.Diff(h.everything()); len(diff) > 0 {
		t.Errorf("changed %q", diff)
	}
}

func TestLabT05ParallelAssigns(t *testing.T) {
	h := sharedLab(t)
	var group sync.WaitGroup
	for i := range 10 {
		group.Go(func() {
			if out, err := h.Command("077", "slots", "assign", "box", fmt.Sprintf("p%d", i)).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	group.Wait()
	var table struct{ Slots map[string]string }
	if err := json.Unmarshal([]byte(h.ReadFile(t, "/etc/agentworks/slots.json")), &table); err != nil {
		t.Fatal(err)
	}
	users := map[string]bool{}
	for _, user := range table.Slots {
		users[user] = true
	}
	if len(table.Slots) != 10 || len(users) != 10 || table.Slots["slot10"] == "" {
		t.Errorf("%v", table.Slots)
	}
	if got := h.Sh("stat -c '%U:%G %a' /etc/agentworks/slots.json; ls /srv/vs/data/docs/_users | grep -c ^p"); got != "root:vs 640\n10" {
		t.Error(got)
	}
	h.Sh("rm -r /srv/vs/data/docs/_users/p?")
}

// The operator's side or the half is killed, each in every part of the run; the
// verb again ends like a run that nobody disturbed.
func TestLabKilledAssigns(t *testing.T) {
	t.Parallel() // beside those that need no lab
	h := sharedLab(t)
	h.Sh(`cd /srv/vs/data/docs/_users/u1; for i in $(seq 300); do echo x > f$i; done; chown -R vs:vs .; chmod -R u=rwX,go=rX .
		tar -C / -cf /root/before.tar etc/agentworks srv/vs/data/docs/_users/u1`)
	restore := func() {
		h.Sh(`rm -rf /etc/agentworks/..?* /etc/agentworks/.[!.]* /etc/agentworks/* /srv/vs/data/docs/_users/u1; tar -C / -xpf /root/before.tar`)
	}
	assign := []string{"slots", "assign", "box", "u1"}
	took := time.Hour
	for range 2 {
		restore()
		begin := time.Now()
		h.Must(assign...)
		took = min(took, time.Since(begin))
	}
	want := h.everything()

	const kills = 50
	cut := 0
	for i := range kills {
		restore()
		cmd := h.Command("077", assign...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(took * time.Duration(100*i+rand.IntN(100)) / (100 * kills))
		if i%2 == 0 {
			_ = cmd.Process.Kill()
		} else {
			h.Exec(t, "/bin/sh", "-c", `for p in /proc/[0-9]*; do [ "$(readlink $p/exe)" = /usr/local/libexec/agentworks/agentworks-deploy ] && kill -9 ${p#/proc/}; done`)
		}
		if cmd.Wait() != nil {
			cut++
		}
		h.Must(assign...)
		if diff := want.Diff(h.everything()); len(diff) > 0 {
			t.Fatalf("kill %d, then the verb again: %q", i, diff)
		}
	}
	t.Logf("%d of %d runs were cut", cut, kills)
}
