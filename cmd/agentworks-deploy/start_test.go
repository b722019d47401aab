package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// build links a program as `make build` does.
func build(t testing.TB, source string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return program
}

// With a template engine that can be reached, the linker keeps every method of
// every package, and the program grows by half.
func TestLinkedProgramStaysSmall(t *testing.T) {
	program, err := os.ReadFile(build(t, "."))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"text/template.(*state).walk", "html/template.(*escaper)", "aws-sdk-go-v2/service/s3.", "aws-sdk-go-v2/service/cloudformation."} {
		if bytes.Contains(program, []byte(name)) {
			t.Errorf("%s is linked", name)
		}
	}
	if limit := 20_000_000; len(program) >= limit {
		t.Errorf("%d bytes, not below %d", len(program), limit)
	}
}

// What runs as a slot carries no client of a network service, no YAML and no
// command line framework.
func TestSlotProgramsStayFree(t *testing.T) {
	for _, program := range []string{"../slotctl", "../landlock-runner"} {
		deps, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", program).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(deps) {
			name := bytes.TrimSpace(line)
			if len(name) > 0 && !bytes.HasPrefix(name, []byte("agentworks-deploy/")) && !bytes.HasPrefix(name, []byte("golang.org/x/sys/")) {
				t.Errorf("%s needs %s", program, name)
			}
		}
	}
}

// BenchmarkHelp compares --help with a program that does nothing, run after run,
// so that what else the machine does hits both. It fails above 8 times.
func BenchmarkHelp(b *testing.B) {
	empty := filepath.Join(b.TempDir(), "main.go")
	if err := os.WriteFile(empty, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	help, nothing := build(b, "."), build(b, empty)
	run := func(argv ...string) time.Duration {
		begun := time.Now()
		if err := exec.Command(argv[0], argv[1:]...).Run(); err != nil {
			b.Fatal(err)
		}
		return time.Since(begun)
	}
	best, least := time.Hour, time.Hour
	for b.Loop() {
		for range 50 {
			best, least = min(best, run(help, "--help")), min(least, run(nothing))
		}
	}
	ratio := float64(best) / float64(least)
	b.ReportMetric(ratio, "times-empty")
	b.ReportMetric(float64(best.Microseconds()), "µs-help")
	b.ReportMetric(float64(least.Microseconds()), "µs-empty")
	if ratio > 8 {
		b.Errorf("--help takes %.1f times as long as an empty program (%s, %s)", ratio, best, least)
	}
}
