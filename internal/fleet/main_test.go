package fleet_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"agentworks-deploy/internal/lab/labtest"
)

// TestMain also is the Vault of the admission tests, in a lab.
func TestMain(m *testing.M) {
	if listen := os.Getenv("FLEET_TEST_VAULT"); listen != "" {
		fmt.Fprintln(os.Stderr, standIn(listen, os.Stdout))
		os.Exit(1)
	}
	if file := os.Getenv("FLEET_TEST_PEAK"); file != "" {
		os.Exit(runMeasured(file))
	}
	os.Exit(labtest.Main(m))
}

// measured is cmd run by a small process between it and this one: what the kernel
// reports as a program's peak begins with the size of the process that started
// it, and this one has grown by then. Its peak in KiB ends up in file.
func measured(cmd *exec.Cmd, file string) *exec.Cmd {
	between := exec.Command(os.Args[0], cmd.Args...)
	between.Env = append(slices.Clone(cmd.Env), "FLEET_TEST_PEAK="+file)
	return between
}

func runMeasured(file string) int {
	os.Unsetenv("FLEET_TEST_PEAK")
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	_ = cmd.Run() // its code is judged
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	if err := os.WriteFile(file, strconv.AppendInt(nil, peak, 10), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return cmd.ProcessState.ExitCode()
}
