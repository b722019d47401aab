package slots

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// A number that has gone to another process since it was looked at is not
// signalled (case S25).
func TestS25SignalOnlyWhoWasMeant(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	table := processTable("/proc")
	p, err := table.read(cmd.Process.Pid)
	if err != nil || p.ppid != os.Getpid() || p.started == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	recycled := p
	recycled.started--
	if err := table.signal(recycled, unix.SIGKILL); err == nil {
		t.Error("a process of the same number was signalled")
	}
	if err := table.signal(p, unix.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("the process ended with %v", err)
	}
	if err := table.signal(p, unix.SIGTERM); err == nil {
		t.Error("a process that is gone was signalled")
	}
}

func TestDescendantsOfAnOddName(t *testing.T) {
	dir := t.TempDir()
	write := func(pid, stat string) {
		t.Helper()
		if err := os.Mkdir(dir+"/"+pid, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/"+pid+"/stat", []byte(stat), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rest := " 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0\n"
	write("10", "10 (slotctl) S 1"+rest)
	write("11", "11 (a) R 99 (b) S 10"+rest)
	write("12", "12 (sh\n) S 11"+rest)
	write("13", "13 (other) S 1"+rest)
	write("14", "14 (short) S\n")
	if err := os.Mkdir(dir+"/sys", 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := processTable(dir).descendants(10)
	if err != nil || len(got) != 2 || got[0].pid != 11 || got[1].pid != 12 || got[0].started != 77 {
		t.Errorf("%+v, %v", got, err)
	}
}
