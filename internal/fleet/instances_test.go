package fleet_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"agentworks-deploy/internal/remote/ssmtest"
)

// canned makes a stand-in's instances answer what the lab answered, but for the
// one that is the lab.
func canned(t *testing.T, s *seat, ids []string, tags map[string]string) {
	t.Helper()
	type answer struct {
		stdout, stderr string
		code           int
	}
	var once sync.Once
	var known answer
	s.ssm.Execute(func(ctx context.Context, id, script string) (string, string, int) {
		once.Do(func() { known.stdout, known.stderr, known.code = s.agent(ctx, id, script) })
		return known.stdout, known.stderr, known.code
	})
	for _, id := range ids {
		s.ssm.Register(id, tags)
	}
}

func instances(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("i-%017x", i+1)
	}
	return ids
}

// Many instances are one command and some pages, whatever the throttling.
func TestB51ThousandInstances(t *testing.T) {
	s := takeSeat(t, ready(t).lab)
	ids := instances(1000)
	canned(t, s, ids, map[string]string{"Product": "vs"})
	s.host(t, "thousand", sshRoot, "{ssm: {region: "+region+", targets: {tag: Product=vs, max_concurrency: 50%}}}")
	s.ssm.Play(ssmtest.Faults{ThrottleEvery: 3, EmptyLists: 2, Offline: map[string]bool{ids[7]: true}})
	peak := filepath.Join(t.TempDir(), "peak")
	cmd := measured(s.command(t.Context(), "slotcheck", "thousand"), peak)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // its code is judged
	if code := cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("exit %d, want 3 for the one that is offline\n%s", code, errs.String())
	}
	for i, id := range ids {
		want := "thousand/" + id + "  0 "
		if i == 7 {
			want = "thousand/" + id + "  3 "
		}
		if strings.Count(out.String(), want) != 1 {
			t.Fatalf("%s is not reported as %q\n%.2000s", id, want, out.String())
		}
	}
	need := len(ids)/50 + len(ids)
	calls := s.ssm.Calls("")
	text, err := os.ReadFile(peak)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := strconv.Atoi(string(text))
	memory >>= 10
	if err != nil || memory == 0 {
		t.Fatalf("a peak of %q: %v", text, err)
	}
	t.Logf("%d calls, %d of them refused (%d would be needed one by one), %d MB", calls, s.ssm.Refused(), need, memory)
	if calls > need*13/10 || memory >= 200 {
		t.Errorf("%d calls for %d that are needed, %d MB", calls, need, memory)
	}
}

// Ids go in batches of 50; an answer that the list cuts is fetched by itself.
func TestB51IdsInBatches(t *testing.T) {
	s := takeSeat(t, ready(t).lab)
	ids := instances(120)
	canned(t, s, ids, nil)
	s.host(t, "batches", sshRoot, "{ssm: {region: "+region+", targets: {ids: ["+strings.Join(append(ids, "i-0fffffffffffffff0"), ", ")+"]}}}")
	s.ssm.Play(ssmtest.Faults{ThrottleEvery: 3})
	stdout, stderr, code := s.run(t, "slotcheck", "batches", "--format", "json")
	if code != 3 || strings.Count(stdout, `"host": "batches/i-`) != 121 || strings.Count(stdout, "is not known to Systems Manager") != 1 {
		t.Errorf("exit %d\n%.2000s\n%s", code, stdout, stderr)
	}
	if n := s.ssm.Calls("SendCommand") - s.ssm.Refused(); n > 3 {
		t.Errorf("%d sends", n)
	}
	_, stderr, code = s.run(t, "slots", "status", "batches")
	if code != 0 {
		t.Errorf("the admin channel of the same host: exit %d\n%s", code, stderr)
	}
	s.host(t, "batches", strings.ReplaceAll(ssmByID, "instance: {id: "+instance+"}", "targets: {ids: ["+instance+"]}"), sshVs)
	_, stderr, code = s.run(t, "slots", "status", "batches")
	if code != 2 || !strings.Contains(stderr, "leads to many instances") {
		t.Errorf("one host's verb on many: exit %d\n%s", code, stderr)
	}
}

// What became of some says nothing of the others.
func TestSpoiledAnswersOfSomeInstances(t *testing.T) {
	s := takeSeat(t, ready(t).lab)
	ids := instances(4)
	canned(t, s, ids, map[string]string{"Product": "vs"})
	s.host(t, "some", sshRoot, "{ssm: {region: "+region+", targets: {tag: Product=vs}}}")
	s.ssm.Play(ssmtest.Faults{
		Details: map[string]string{ids[0]: "ExecutionTimedOut", ids[3]: "Terminated"},
		Stdout: func(id, out string) string {
			if id == ids[1] {
				return out[:len(out)/2]
			}
			return out
		},
	})
	stdout, stderr, code := s.run(t, "slotcheck", "some")
	lines := strings.Split(stdout, "\n")
	if code != 3 || len(lines) < 2 || strings.Join(strings.Fields(lines[len(lines)-2]), " ") != "exit 3 3 0 3" {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}
