package labtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// programs are what `make build` makes, built once a test process.
type programs struct {
	sync.Once
	dir string
	err error
}

// Binaries returns a folder with the programs of `make build`, built from the
// source under test: agentworks-deploy, slotctl, video-studio-landlock-runner and
// sample-release/. All test processes build into one folder, one after another,
// so that an unchanged program is not linked again; each has its own links to it.
func Binaries(t testing.TB) string {
	t.Helper()
	p := &process.programs
	p.Do(func() { p.dir, p.err = build() })
	if p.err != nil {
		t.Fatalf("labtest: build the programs: %v", p.err)
	}
	return p.dir
}

func (p *programs) remove() {
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

func programsFolder() string { return filepath.Join(os.TempDir(), "agentworks-labtest") }

func build() (string, error) {
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	shared := filepath.Join(programsFolder(), "built")
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Open(shared)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	cmd := exec.Command("make", "--no-print-directory", "-C", filepath.Dir(strings.TrimSpace(string(module))), "build", "BIN="+shared)
	// The programs are static, also where the tests are not; and this make is
	// nobody's child.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "MAKEFLAGS=", "MAKELEVEL=")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(err, errors.New(string(bytes.TrimSpace(said))))
	}
	name, err := nextName()
	if err != nil {
		return "", err
	}
	own := filepath.Join(programsFolder(), name)
	if said, err := exec.Command("cp", "-al", shared, own).CombinedOutput(); err != nil {
		return "", fmt.Errorf("link the programs: %w: %s", err, said)
	}
	return own, nil
}
