package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"agentworks-deploy/internal/lab/labtest"
)

// tests runs the package's tests beside the commands that scripts may call.
type tests struct{ m *testing.M }

func (t tests) Run() int { return labtest.Main(t.m) }

func TestMain(m *testing.M) {
	testscript.Main(tests{m}, map[string]func(){
		program: func() { os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ())) },
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "oneline": oneline},
		Setup: func(env *testscript.Env) error {
			hosts, err := filepath.Abs("../../hosts")
			env.Setenv("HOSTS", hosts)
			return err
		},
	})
}

// exits runs a command and wants one exit code: exits 2 agentworks-deploy …
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("%s: exit %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// oneline wants a single failure line on standard error and nothing on standard output.
func oneline(ts *testscript.TestScript, neg bool, args []string) {
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("standard output holds %q", out)
	}
	text := ts.ReadFile("stderr")
	if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, program+": ") {
		ts.Fatalf("not one failure line: %q", text)
	}
	if strings.Contains(strings.ToLower(text), "usage:") {
		ts.Fatalf("usage on a failure: %q", text)
	}
}

// run calls Main as main does.
func run(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = Main(args, strings.NewReader(""), &out, &errOut, environ)
	return code, out.String(), errOut.String()
}

func hostsEnv(t *testing.T) []string {
	t.Helper()
	dir, err := filepath.Abs("../../hosts")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"AGENTWORKS_DEPLOY_HOSTS_DIR=" + dir}
}

func TestHelpOfEveryCommandEndsWithCodesAndExample(t *testing.T) {
	a := &app{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" || cmd.Parent() != nil && cmd.Parent().Name() == "completion" {
			return
		}
		var out bytes.Buffer
		cmd.SetOut(&out)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		_, end, ok := strings.Cut(out.String(), "\nExit codes:\n")
		codes, example, ok2 := strings.Cut(end, "\nExample:\n")
		if !ok || !ok2 || !strings.HasPrefix(codes, "  ") || !strings.Contains(example, program+" ") {
			t.Errorf("%s: help does not end with exit codes and an example:\n%s", cmd.CommandPath(), out.String())
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short text %q", cmd.CommandPath(), cmd.Short)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(a.root())
}

// The verdict of a run survives a reader that goes away, and nothing is said of it.
func TestB72ClosedPipeEndsQuietlyWithTheVerdictKept(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("product: [\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		environ []string
		args    []string
		code    int
		stderr  string
	}{
		{hostsEnv(t), []string{"config", "explain", "rts"}, 0, ""},
		{hostsEnv(t), []string{"hosts", "list"}, 0, ""},
		{hostsEnv(t), []string{"version"}, 0, ""},
		{[]string{"AGENTWORKS_DEPLOY_HOSTS_DIR=" + dir}, []string{"hosts", "validate"}, 2, "agentworks-deploy: 1 of 1 host files are not right\n"},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		var errOut bytes.Buffer
		code := Main(c.args, strings.NewReader(""), w, &errOut, c.environ)
		w.Close()
		if code != c.code || errOut.String() != c.stderr {
			t.Errorf("%v: exit %d, %q; want %d, %q", c.args, code, errOut.String(), c.code, c.stderr)
		}
	}
}

func TestB71NoEscapesWithoutATerminal(t *testing.T) {
	for _, term := range []string{"TERM=xterm-256color", "TERM=dumb", "CLICOLOR_FORCE=1"} {
		for _, args := range [][]string{{"hosts", "list"}, {"config", "explain", "lab"}, {"--help"}, {"nonsense"}} {
			_, out, errOut := run(t, append(hostsEnv(t), term), args...)
			if strings.Contains(out+errOut, "\x1b") {
				t.Errorf("%s %v: escape bytes in %q", term, args, out+errOut)
			}
		}
	}
}
