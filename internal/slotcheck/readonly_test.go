package slotcheck_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"agentworks-deploy/internal/lab/labtest"
)

// everything scans what an audit could leave a trace in. The time of /tmp itself
// is left out: deny-host-tmp needs a file there, and only root could put the
// folder's time back.
func (o operator) everything(t testing.TB) labtest.Snapshot {
	t.Helper()
	return o.Snapshot(t, "/srv", "/data", "/etc", "/usr/local", "/home", "/tmp").Without(func(path string) bool { return path == "/tmp" })
}

// unchanged compares, times included.
func unchanged(t *testing.T, before, after labtest.Snapshot, what string) {
	t.Helper()
	if diff := before.DiffTimes(after); len(diff) > 0 {
		t.Errorf("%s changed the host:\n%s", what, strings.Join(diff, "\n"))
	}
}

// leftovers are the processes that an audit may leave for a moment: those of
// slots, and of the service account those that are no service's.
const leftovers = `for p in /proc/[0-9]*; do
	uid=$(awk '/^Uid:/ {print $2}' $p/status 2>/dev/null) || continue
	case $(awk '/^State:/ {print $2}' $p/status 2>/dev/null) in Z|"") continue;; esac
	case $(getent passwd "${uid:-0}" | cut -d: -f1) in
	slot[0-9]*) echo "${p#/proc/} $(tr '\0' ' ' <$p/cmdline)";;
	vs) case $(cat $p/cgroup 2>/dev/null) in *user@*) ;; *) echo "${p#/proc/} $(tr '\0' ' ' <$p/cmdline)";; esac;;
	esac
done`

// settled waits until nothing of an audit runs any more.
func (o operator) settled(t *testing.T) {
	t.Helper()
	var left string
	for until := time.Now().Add(15 * time.Second); time.Now().Before(until); {
		if left = o.sh(t, leftovers); left == "" {
			return
		}
		time.Sleep(50 * time.Millisecond) // between two looks, not instead of one
	}
	t.Fatalf("processes are left:\n%s", left)
}

func TestSlotcheckChangesNothing(t *testing.T) {
	o := reference(t)
	before := o.everything(t)
	for _, level := range []string{"basic", "full"} {
		if r := o.audit(t, "--level", level); r.Exit != 0 {
			t.Errorf("%s:\n%s", level, text(r))
		}
		o.settled(t)
		unchanged(t, before, o.everything(t), "level "+level)
	}
}

// TestKilledSlotcheckLeavesNothing kills the caller, and then the half on the
// host itself, at random moments of both levels.
func TestKilledSlotcheckLeavesNothing(t *testing.T) {
	o := reference(t)
	began := time.Now()
	o.audit(t, "--level", "full")
	length := map[string]time.Duration{"full": time.Since(began)}
	began = time.Now()
	o.audit(t)
	length["basic"] = time.Since(began)
	before := o.everything(t)
	for i := range 50 {
		level := []string{"basic", "full"}[i%2]
		after := time.Duration(rand.Int64N(int64(length[level])))
		victim := []string{"the caller", "the half"}[i/2%2]
		what := fmt.Sprintf("kill %d: %s, level %s, after %s", i, victim, level, after)
		cmd := o.command(o.Name, "slotcheck", "lab", "--level", level)
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after) // the moment is what is random
		if victim == "the half" {
			o.sh(t, `for p in $(pgrep -u vs -f ' on-host$'); do kill -9 "$p" 2>/dev/null || :; done`)
		} else if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its code is another test's business
		o.settled(t)
		if i%10 == 9 { // a scan takes longer than an audit
			unchanged(t, before, o.everything(t), "up to "+what)
		}
	}
	if r := o.audit(t, "--level", "full"); r.Exit != 0 {
		t.Errorf("after the kills:\n%s", text(r))
	}
}
