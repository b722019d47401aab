package labtest_test

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"agentworks-deploy/internal/lab"
	"agentworks-deploy/internal/lab/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.Main(m)) }

func TestRunPassesCodeAndStreams(t *testing.T) {
	l := labtest.Shared(t)
	for _, c := range []struct {
		name           string
		cmd            labtest.Cmd
		stdout, stderr string
		code           int
	}{
		{"output", labtest.Cmd{Argv: []string{"hostname"}}, l.Name + "\n", "", 0},
		{"input", labtest.Cmd{Argv: []string{"cat"}, Stdin: "word"}, "word", "", 0},
		{"error output and code", labtest.Cmd{Argv: []string{"sh", "-c", "echo no >&2; exit 7"}}, "", "no\n", 7},
		{"signal", labtest.Cmd{Argv: []string{"sh", "-c", "kill -9 $$"}}, "", "", 137},
		{"no such program", labtest.Cmd{Argv: []string{"/nowhere"}}, "", "", 127},
		{"no such name", labtest.Cmd{Argv: []string{"nowhere"}}, "", "", 127},
		{"no program", labtest.Cmd{Argv: []string{"/etc/passwd"}}, "", "", 126},
		{"account", labtest.Cmd{Argv: []string{"id", "-un"}, User: "nobody"}, "nobody\n", "", 0},
		{"folder", labtest.Cmd{Argv: []string{"pwd"}, Dir: "/etc"}, "/etc\n", "", 0},
		{"environment", labtest.Cmd{Argv: []string{"sh", "-c", "echo $A $HOME"}, Env: []string{"A=b"}}, "b /root\n", "", 0},
		{"a child that stays", labtest.Cmd{Argv: []string{"sh", "-c", "sleep 60 & echo gone"}}, "gone\n", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr, code := l.Run(t, c.cmd)
			if stdout != c.stdout || stderr != c.stderr || code != c.code {
				t.Errorf("got %q %q %d, want %q %q %d", stdout, stderr, code, c.stdout, c.stderr, c.code)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	l := labtest.Shared(t)
	l.WriteFile(t, "/srv/file", "text", 0o640)
	if got := l.MustExec(t, "stat", "-c", "%a %U", "/srv/file"); got != "640 root" {
		t.Errorf("mode and owner %q", got)
	}
	if got := l.ReadFile(t, "/srv/file"); got != "text" {
		t.Errorf("content %q", got)
	}
	if _, err := os.Stat("/srv/file"); err == nil {
		t.Error("the file is on the machine")
	}
}

func TestSnapshotSeesEveryKindOfChange(t *testing.T) {
	l := labtest.Shared(t)
	l.MustExec(t, "sh", "-ec", "mkdir -p /srv/tree/dir; cd /srv/tree; echo a >content; echo a >mode; echo a >owner; echo a >acl; ln -s a link; echo a >gone; echo a >touched")
	before := l.Snapshot(t, "/srv/tree", "/srv/nowhere")
	if diff := before.DiffTimes(l.Snapshot(t, "/srv/tree")); len(diff) > 0 {
		t.Fatalf("a second look differs: %q", diff)
	}
	l.MustExec(t, "sh", "-ec", "cd /srv/tree; echo b >content; chmod 600 mode; chown 1 owner; setfacl -m u:nobody:r acl; ln -sfn b link; rm gone; touch -d 2001-01-01 touched; setfacl -d -m u:nobody:r dir; mkfifo new")
	after := l.Snapshot(t, "/srv/tree")
	names := func(lines []string) (names []string) {
		for _, line := range lines {
			name, _, _ := strings.Cut(line, ":")
			names = append(names, strings.TrimPrefix(name, "/srv/tree/"))
		}
		return names
	}
	if got, want := names(before.Diff(after)), []string{"acl", "content", "dir", "gone", "link", "mode", "new", "owner"}; !slices.Equal(got, want) {
		t.Errorf("changed %q, want %q", got, want)
	}
	if got := names(before.DiffTimes(after)); !slices.Contains(got, "touched") {
		t.Errorf("times are not compared: %q", got)
	}
}

// A test process that is killed leaves its lab; the next one removes it.
func TestLabsOfAKilledTestProcess(t *testing.T) {
	if os.Getenv("LABTEST_VICTIM") != "" {
		l := labtest.Shared(t)
		os.Stdout.WriteString("lab " + l.Name + "\n")
		select {}
	}
	victim := exec.Command(os.Args[0], "-test.run=^TestLabsOfAKilledTestProcess$")
	victim.Env = append(os.Environ(), "LABTEST_VICTIM=1")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	name := ""
	for lines := bufio.NewScanner(out); name == "" && lines.Scan(); {
		name, _ = strings.CutPrefix(lines.Text(), "lab ")
	}
	_ = victim.Process.Kill()
	_ = victim.Wait()
	l, err := lab.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := l.Status(); err != nil || !s.Up {
		t.Fatalf("the killed process took its lab along: %+v, %v", s, err)
	}
	if said, err := exec.Command(os.Args[0], "-test.run=^$").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if s, err := l.Status(); err != nil || s.Exists {
		t.Errorf("it is still there: %+v, %v", s, err)
	}
}
