package lab_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentworks-deploy/internal/lab"
	"agentworks-deploy/internal/lab/labtest"
)

// machine is what a lab must leave alone: mounts, interfaces, kernel settings,
// cgroups and processes of the name.
func machine(t *testing.T, name string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	for _, file := range []string{"/proc/self/mountinfo", "/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/printk", "/proc/sys/kernel/panic", "/proc/sys/fs/protected_symlinks", "/proc/sys/net/ipv4/ip_forward"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		seen[file] = string(text)
	}
	for _, pattern := range []string{"/sys/class/net/*", "/sys/fs/cgroup/*" + name + "*", "/sys/fs/cgroup/unified/*" + name + "*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		seen[pattern] = fmt.Sprint(found)
	}
	seen["processes"] = fmt.Sprint(processes(t, "cgroup", "agentworks-lab-"+name))
	return seen
}

func changes(before, after map[string]string) (lines []string) {
	for what, b := range before {
		if a := after[what]; a != b {
			lines = append(lines, fmt.Sprintf("%s: %s, was %s", what, a, b))
		}
	}
	return lines
}

// processes lists the pids whose file in /proc holds the text. A zombie is
// nothing that runs; it waits for the machine's first process.
func processes(t *testing.T, file, text string) (pids []string) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		status, err := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if err != nil || strings.Contains(string(status), "State:\tZ") {
			continue
		}
		if said, err := os.ReadFile(path); err == nil && strings.Contains(strings.ReplaceAll(string(said), "\x00", " "), text) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

func TestAKilledUpLeavesNothingAfterReset(t *testing.T) {
	shared := labtest.Shared(t, labtest.Reference())
	name := strings.TrimSuffix(shared.Name, "-1") + "-killed"
	l, err := lab.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	s := lab.DefaultStore()
	before, etc := machine(t, name), labtest.Scan(t, "/etc")
	const times = 12
	ended, longest := 0, time.Second
	for i := range times {
		cmd := exec.Command("/proc/self/exe", "up", s.Cache, s.Labs, name)
		begin := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			// The first says how long a whole one takes.
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			longest = time.Since(begin)
			if _, err := l.Reset(context.Background()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		// The moment is the point here, not a wait for something.
		time.Sleep(rand.N(longest * 5 / 4))
		_ = cmd.Process.Kill()
		if cmd.Wait() == nil {
			ended++
		}
		// Half of the time the next up goes on from there.
		if rand.N(2) == 0 {
			if _, err := l.Up(context.Background(), options()); err != nil {
				t.Fatalf("up after a killed up: %v", err)
			}
			if err := l.In(func() error { _, err := os.Stat("/srv/vs/data/docs/Workflow/wf2/public.txt"); return err }); err != nil {
				t.Fatalf("an up after a killed up is not complete: %v", err)
			}
		}
		if _, err := l.Reset(context.Background()); err != nil {
			t.Fatalf("reset after a killed up: %v", err)
		}
		if lines := changes(before, machine(t, name)); len(lines) > 0 {
			t.Fatalf("left over: %q", lines)
		}
		left, err := filepath.Glob(filepath.Join(s.Labs, "*"+name+"*"))
		dot, errDot := filepath.Glob(filepath.Join(s.Labs, "."+name+"*"))
		if err != nil || errDot != nil || len(left)+len(dot) > 0 {
			t.Fatalf("left over: %q %q", left, dot)
		}
	}
	t.Logf("%d of %d came up before the kill", ended, times-1)
	if diff := etc.Diff(labtest.Scan(t, "/etc")); len(diff) > 0 {
		t.Errorf("the machine's /etc changed: %q", diff)
	}
}

// A killed reset is finished by the next one, and never looks like a lab.
func TestAKilledResetIsFinishedByTheNext(t *testing.T) {
	l := labtest.New(t)
	removing := filepath.Join(filepath.Dir(l.Dir()), "."+l.Name+".removing")
	if _, err := l.Down(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(l.Dir(), removing); err != nil {
		t.Fatal(err)
	}
	if s, err := l.Status(); err != nil || s.Exists {
		t.Errorf("half removed, status says %+v, %v", s, err)
	}
	if _, err := l.Up(context.Background(), options()); err != nil {
		t.Fatal(err)
	}
	if exists(removing) {
		t.Error("the next up leaves the remains")
	}
}

// A recorded pid that is another process by now is left alone.
func TestAReusedPidIsNotTheLab(t *testing.T) {
	l := labtest.New(t)
	if _, err := l.Down(context.Background()); err != nil {
		t.Fatal(err)
	}
	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	record := fmt.Sprintf(`{"pid":%d,"start":1,"boot":"x"}`, bystander.Process.Pid)
	if err := os.WriteFile(filepath.Join(l.Dir(), "running.json"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := l.Status(); err != nil || s.Up {
		t.Errorf("status says %+v, %v", s, err)
	}
	if _, err := l.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	_ = bystander.Process.Kill()
	if err := bystander.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the bystander ended with %v", err)
	}
}

// A killed making of the root file system leaves neither package managers nor
// half a root that could be taken for one.
func TestAKilledRootMakingLeavesNothing(t *testing.T) {
	s := lab.Store{Cache: t.TempDir(), Labs: t.TempDir()}
	l, err := s.Lab("killed-making")
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "up", s.Cache, s.Labs, l.Name)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "packages are being unpacked", func() bool {
		found, _ := filepath.Glob(filepath.Join(s.Cache, "*.making/usr/bin/dpkg"))
		return len(found) > 0
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	await(t, "every process of the making is gone", func() bool { return len(processes(t, "cmdline", s.Cache)) == 0 })
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || string(after) != string(before) {
		t.Errorf("the mount table changed (%v)", err)
	}
	if _, err := l.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.Cache, "[^.]*")); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 90 s until %s", what)
		}
	}
}
