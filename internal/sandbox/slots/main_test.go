package slots_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var slotctlBinary string // written once, before any test

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

// testMain builds the real program once for all tests of the package.
func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "slotctl-build-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	slotctlBinary = filepath.Join(dir, "slotctl")
	build := exec.Command("go", "build", "-o", slotctlBinary, "agentworks-deploy/cmd/slotctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build slotctl: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

func built(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("these tests need root: they run slotctl under other uids")
	}
	return slotctlBinary
}
