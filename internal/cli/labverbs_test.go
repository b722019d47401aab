package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"agentworks-deploy/internal/lab/labtest"
)

func TestLabExecPassesEverythingThrough(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	self := filepath.Join(labtest.Binaries(t), program)
	for _, c := range []struct {
		name           string
		args           []string
		stdin          string
		stdout, stderr string // stderr: a fragment; "" for nothing at all
		code           int
	}{
		{"output", []string{"--", "hostname"}, "", l.Name + "\n", "", 0},
		{"input", []string{"--", "sh", "-c", "cat; cat >&2"}, "a\x00b", "a\x00b", "", 0},
		{"the program's flags are its own", []string{"echo", "--name", "x"}, "", "--name x\n", "", 0},
		{"no shell in between", []string{"--", "echo", "$HOME;", "*"}, "", "$HOME; *\n", "", 0},
		{"another account", []string{"--user", "vs", "--", "id", "-un"}, "", "vs\n", "", 0},
		{"a code of the program", []string{"--", "sh", "-c", "exit 3"}, "", "", "", 3},
		{"a signal", []string{"--", "sh", "-c", "kill -TERM $$"}, "", "", "", 143},
		{"no such program", []string{"--", "/no/program"}, "", "", "/no/program", 127},
		{"not executable", []string{"--", "/etc/passwd"}, "", "", "/etc/passwd", 126},
		{"no program at all", []string{"--"}, "", "", "<program> is missing", 125},
		{"a wrong flag", []string{"--nam", "x", "--", "true"}, "", "", "unknown flag", 125},
		{"a wrong name", []string{"--name", "A/B", "--", "true"}, "", "", "lab name", 125},
		{"not up", []string{"--name", "never-made", "--", "true"}, "", "", "agentworks-deploy lab up --name never-made", 125},
		{"no such account", []string{"--user", "nobodyhere", "--", "true"}, "", "", "nobodyhere", 125},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(self, append([]string{"lab", "exec"}, c.args...)...)
			cmd.Env = append(os.Environ(), "AGENTWORKS_DEPLOY_LAB="+l.Name)
			cmd.Stdin = strings.NewReader(c.stdin)
			stdout, said, code := labtest.Finish(t, cmd)
			if code != c.code || stdout != c.stdout {
				t.Errorf("exit %d with %q, want %d with %q", code, stdout, c.code, c.stdout)
			}
			failure, usage, _ := strings.Cut(said, "\nusage: ") // follows wrong words alone
			if c.stderr == "" && said != "" || !strings.Contains(failure, c.stderr) || strings.Count(strings.TrimSuffix(failure, "\n"), "\n") > 0 || strings.Count(usage, "\n") > 2 {
				t.Errorf("standard error %q, want one line with %q", said, c.stderr)
			}
		})
	}
}

// A signal to lab exec alone reaches the program, whose answer passes.
func TestLabExecPassesAStop(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	cmd := exec.Command(filepath.Join(labtest.Binaries(t), program), "lab", "exec", "--name", l.Name, "--",
		"bash", "-c", "trap 'kill $!; exit 42' TERM; sleep infinity & echo ready; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 42 {
		t.Errorf("exit %d", code)
	}
}

// A login shell finds the user manager of its account, as over ssh.
func TestLabShellReachesTheUserManager(t *testing.T) {
	l := labtest.Shared(t, labtest.Reference())
	l.MustExec(t, "sh", "-c", "loginctl enable-linger vs && systemctl start user@$(id -u vs).service") // which waits until it is up
	// script lends the terminal without which there is no shell.
	line := filepath.Join(labtest.Binaries(t), program) + " lab shell --user vs --name " + l.Name
	cmd := exec.Command("script", "--quiet", "--return", "--command", line, "/dev/null")
	cmd.Stdin = strings.NewReader("systemctl --user show -P Version; echo asked=$?; exit\n")
	stdout, stderr, code := labtest.Finish(t, cmd)
	if code != 0 || !strings.Contains(stdout, "asked=0") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}

func TestTablesFitTheTerminal(t *testing.T) {
	widest := func(columns string) (widest int, text string) {
		cmd := exec.Command("script", "--quiet", "--return", "--command", "stty cols "+columns+"; "+filepath.Join(labtest.Binaries(t), program)+" lab break --list", "/dev/null")
		stdout, stderr, code := labtest.Finish(t, cmd)
		if code != 0 {
			t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
		}
		for line := range strings.Lines(stdout) {
			widest = max(widest, utf8.RuneCountInString(strings.TrimRight(line, "\r\n")))
		}
		return widest, stdout
	}
	if n, text := widest("90"); n > 90 {
		t.Errorf("%d columns:\n%s", n, text)
	}
	if n, text := widest("500"); n <= 160 {
		t.Errorf("wrapped to %d columns of 500:\n%s", n, text)
	}
}
