package slottable

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/lab/labtest"
)

// helperRoot makes a run of the test binary the victim of the kills: it works on
// the scratch host named there, and prints a line when it begins.
const (
	helperRoot = "SLOTTABLE_TEST_ROOT"
	helperVerb = "SLOTTABLE_TEST_VERB"
)

func helper(root string) int {
	req := On(scratchHost(slotCount))
	req.User = "u1"
	run := Assign
	if os.Getenv(helperVerb) == "release" {
		run = Release
	}
	fmt.Println("begin")
	if _, _, err := run(context.Background(), scratchSystem(root, slotCount), req); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func victim(t *testing.T, root, verb string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	// The race detector would sleep a second at the end.
	cmd.Env = []string{helperRoot + "=" + root, helperVerb + "=" + verb, "GORACE=atexit_sleep_ms=0"}
	return cmd
}

// begun is a victim that has begun its work.
func begun(t *testing.T, root, verb string) *exec.Cmd {
	t.Helper()
	cmd := victim(t, root, verb)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 16))
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

// A kill at any moment leaves a state in which nothing is open to a slot that
// its user does not hold, and which the same verb completes.
func TestKilledAnywhereTheVerbAgainEndsAlike(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"assign", "release"} {
		t.Run(verb, func(t *testing.T) {
			prepare := func() *scratch {
				s := newScratch(t)
				s.file(tablePath, `{"note":1,"slots":{"slot02":"u2"}}`, 0, serviceID, 0o640)
				for i := range 10 {
					dir := fmt.Sprintf("%su1/d%d", users, i)
					s.dir(dir, serviceID, serviceID, 0o755)
					for j := range 10 {
						s.file(fmt.Sprintf("%s/f%d", dir, j), "x", serviceID, serviceID, 0o644)
					}
				}
				s.mode(s.root+users+"u1", serviceID, serviceID, 0o755)
				if verb == "release" {
					s.assigned("u1", "slot01")
				}
				return s
			}
			whole := prepare()
			cmd := begun(t, whole.root, verb)
			begin := time.Now()
			whole.must(cmd.Wait())
			took := time.Since(begin)
			want := comparable(whole)

			const kills = 15
			cut := 0
			for i := range kills {
				s := prepare()
				cmd := begun(t, s.root, verb)
				// The moment is what is tried here: one drawn from each part of the run.
				time.Sleep(took * time.Duration(100*i+rand.IntN(100)) / (100 * kills))
				s.must(cmd.Process.Kill())
				if cmd.Wait() != nil {
					cut++
				}
				s.closed()
				if out, err := victim(t, s.root, verb).CombinedOutput(); err != nil && !strings.Contains(string(out), "u1 holds no slot") {
					t.Fatalf("again: %v: %s", err, out)
				}
				if diff := want.Diff(comparable(s)); len(diff) > 0 {
					t.Fatalf("after a kill and the verb again: %q", diff)
				}
			}
			t.Logf("%d of %d runs were cut", cut, kills)
		})
	}
}

// comparable is the scratch host without its own place and without the time in
// the note.
func comparable(s *scratch) labtest.Snapshot {
	s.Helper()
	all := labtest.Snapshot{}
	for path, e := range s.scan() {
		rel := strings.TrimPrefix(path, s.root)
		if rel == "/etc/agentworks/slots.history.json" {
			e.SHA256 = ""
		}
		all[rel] = e
	}
	return all
}

// closed wants u1's tree shut to slot01 unless u1 holds it.
func (s *scratch) closed() {
	s.Helper()
	var st unix.Stat_t
	s.must(unix.Stat(s.root+users+"u1", &st))
	if s.table().Slot("u1") == "" && int(st.Gid) == slotID(1) {
		s.Errorf("u1 does not hold slot01, which may enter: %d:%d %04o", st.Uid, st.Gid, st.Mode&0o7777)
	}
}
