package fleet_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentworks-deploy/internal/lab/labtest"
)

// operator is the command line of the programs under test, aimed at one lab.
type operator struct {
	lab *labtest.Lab
	bin string
	env []string
}

func operatorOf(t *testing.T, lab *labtest.Lab) operator {
	t.Helper()
	return operator{lab: lab, bin: labtest.Binaries(t)}
}

func (o operator) command(ctx context.Context, args ...string) *exec.Cmd {
	// A umask of 077 everywhere: no mode may come from it (case B08).
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", `umask 077; exec "$0" "$@"`, filepath.Join(o.bin, "agentworks-deploy")}, args...)...)
	cmd.Env = append(append(os.Environ(), "AGENTWORKS_DEPLOY_LAB="+o.lab.Name), o.env...)
	cmd.Dir = "../.." // its hosts folder
	return cmd
}

// run runs one command line and returns its exit code.
func (o operator) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := o.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func (o operator) must(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, code := o.run(t, args...)
	if code != 0 {
		t.Fatalf("%v: exit %d\n%s%s", args, code, stdout, stderr)
	}
	return stdout
}

// release is a build of the sample release with its own front page.
func (o operator) release(t *testing.T, page string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "release")
	if said, err := exec.Command("cp", "-a", filepath.Join(o.bin, "sample-release"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if err := os.WriteFile(filepath.Join(dir, "frontend/index.html"), []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (o operator) current(t *testing.T) string {
	t.Helper()
	return filepath.Base(o.lab.MustExec(t, "readlink", "/srv/vs/current"))
}

// first brings the first release to a fresh lab. Its users' commands would be
// refused without slots, and a deploy refuses such a host: they get them first.
func (o operator) first(t *testing.T) {
	t.Helper()
	o.must(t, "provision", "lab")
	o.must(t, "slots", "assign", "lab", "u1", "slot01")
	o.must(t, "slots", "assign", "lab", "u2", "slot02")
	o.must(t, "deploy", "lab")
}

// ready is the package's lab with a release live.
func ready(t *testing.T) operator {
	t.Helper()
	o := operatorOf(t, labtest.Shared(t, labtest.Reference()))
	if _, _, code := o.lab.Exec(t, "test", "-e", "/srv/vs/current"); code != 0 {
		o.first(t)
	}
	return o
}

func TestDeployLab(t *testing.T) {
	o := ready(t)
	dir := o.release(t, "modes")
	o.must(t, "deploy", "lab", "--release", dir)
	id := o.current(t)
	for path, want := range map[string]string{
		"/srv/vs/releases":                                 "711 vs:vs",
		"/srv/vs/releases/" + id:                           "751 vs:vs",
		"/srv/vs/current/bin":                              "751 vs:vs",
		"/srv/vs/current/frontend":                         "755 vs:vs",
		"/srv/vs/current/frontend/index.html":              "644 vs:vs",
		"/srv/vs/current/bin/video-studio-landlock-runner": "755 vs:vs",
	} {
		if got := o.lab.MustExec(t, "stat", "-c", "%a %U:%G", path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	// A slot reaches the launcher, which answers, and lists nothing (cases R-01, B08).
	if _, stderr, code := o.lab.ExecAs(t, "slot01", "/srv/vs/releases/"+id+"/bin/video-studio-landlock-runner"); code == 126 || code == 127 {
		t.Errorf("the launcher as slot01: exit %d, %s", code, stderr)
	}
	for _, dir := range []string{"/srv/vs/releases", "/srv/vs/releases/" + id, "/srv/vs/current/bin/"} {
		if stdout, _, code := o.lab.ExecAs(t, "slot01", "/bin/ls", dir); code == 0 {
			t.Errorf("slot01 lists %s: %s", dir, stdout)
		}
	}
	health := o.lab.MustExec(t, "/bin/bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/8000; printf 'GET /api/health HTTP/1.0\r\n\r\n' >&3; cat <&3`)
	if !strings.Contains(health, `"status":"healthy"`) {
		t.Errorf("health: %s", health)
	}

	before := o.lab.Snapshot(t, "/srv", "/etc", "/usr/local", "/home")
	pid := o.lab.MustExec(t, "pgrep", "-u", "vs", "vs-workspace")
	stdout := o.must(t, "deploy", "lab", "--release", dir)
	if !strings.Contains(stdout, "deploy: nothing to do") || !strings.Contains(stdout, "slot self-test: ") {
		t.Errorf("a second deploy:\n%s", stdout)
	}
	if diff := before.DiffTimes(o.lab.Snapshot(t, "/srv", "/etc", "/usr/local", "/home").Without(isLock)); len(diff) > 0 && !onlyLocks(diff) {
		t.Errorf("a second deploy changed %q", diff)
	}
	if again := o.lab.MustExec(t, "pgrep", "-u", "vs", "vs-workspace"); again != pid {
		t.Error("a second deploy restarted the services")
	}
}

func isLock(path string) bool { return path == "/srv/vs/deploy.lock" }

func onlyLocks(diff []string) bool {
	for _, d := range diff {
		if !strings.HasPrefix(d, "/srv/vs/deploy.lock: ") {
			return false
		}
	}
	return true
}

func TestDeployPlanChangesNothing(t *testing.T) {
	o := ready(t)
	o.must(t, "provision", "lab") // drops what an upload that another test cut off has left
	before := o.lab.Snapshot(t, "/srv", "/etc", "/usr/local", "/var/lib/agentworks-deploy")
	stdout := o.must(t, "deploy", "lab", "--plan", "--release", o.release(t, "planned"))
	if !strings.Contains(stdout, "1 content to send") || !strings.Contains(stdout, "PLANNED") {
		t.Errorf("plan:\n%s", stdout)
	}
	if diff := before.DiffTimes(o.lab.Snapshot(t, "/srv", "/etc", "/usr/local", "/var/lib/agentworks-deploy")); len(diff) > 0 {
		t.Errorf("a plan changed %q", diff)
	}
}

func TestB36SecondDeployIsRefusedAndNamesTheFirst(t *testing.T) {
	o := ready(t)
	before := o.lab.Snapshot(t, "/srv")
	o.lab.MustExec(t, "/bin/sh", "-c", `setpriv --reuid vs --regid vs --init-groups flock /srv/vs/deploy.lock sh -c 'echo "4711 deploy/transfer 2026-10-04T12:00:00Z" >/srv/vs/deploy.lock; touch /tmp/held; while [ -e /tmp/held ]; do sleep 0.05; done' >/dev/null 2>&1 &
		while ! [ -e /tmp/held ]; do sleep 0.05; done`)
	_, stderr, code := o.run(t, "deploy", "lab", "--provision=false", "--release", o.release(t, "second"))
	o.lab.MustExec(t, "/bin/sh", "-c", "rm /tmp/held; flock /srv/vs/deploy.lock truncate -s 0 /srv/vs/deploy.lock")
	if code != 4 || !strings.Contains(stderr, "deploy/transfer (pid 4711)") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	if diff := before.Diff(o.lab.Snapshot(t, "/srv")); len(diff) > 0 {
		t.Errorf("the refused deploy changed %q", diff)
	}
}

func TestB43UnhealthyReleaseIsLoudWithItsJournal(t *testing.T) {
	o := ready(t)
	old := o.current(t)
	o.lab.WriteFile(t, "/srv/vs/state/sample-health", "crash\n", 0o644)
	defer o.lab.MustExec(t, "rm", "-f", "/srv/vs/state/sample-health")
	begun := time.Now().Truncate(time.Second)
	_, stderr, code := o.run(t, "deploy", "lab", "--release", o.release(t, "unhealthy"))
	if code != 1 || !strings.Contains(stderr, "restarted by itself") || !strings.Contains(stderr, old+") was not put back") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	lines := regexp.MustCompile(`(?m)\]   vs-\w+: (\S+) (.*)$`).FindAllStringSubmatch(stderr, -1)
	told := false
	for _, line := range lines {
		at, err := time.Parse("2006-01-02T15:04:05-0700", line[1])
		if err != nil || at.Before(begun) {
			t.Errorf("%q is not of this start, which was after %s: %v", line[0], begun, err)
		}
		told = told || strings.HasSuffix(line[2], "told to crash by /srv/vs/state/sample-health")
	}
	if !told {
		t.Errorf("no journal line of the service:\n%s", stderr)
	}
	if o.current(t) == old {
		t.Error("current was put back")
	}
}

func TestFolderThatIsNoReleaseChangesNothing(t *testing.T) {
	o := ready(t)
	before := o.lab.Snapshot(t, "/srv", "/etc", "/usr/local")
	other := o.release(t, "without the services' programs")
	if err := os.Rename(filepath.Join(other, "bin/vs-agent"), filepath.Join(other, "bin/another")); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		"testdata":                  "testdata is no release: its bin/ holds no program of a service",
		"internal":                  "internal is no release",
		other:                       "it lacks bin/vs-agent, which vs-agent.service needs",
		filepath.Join(other, "bin"): "is no release",
		"":                          "--release is empty",
	} {
		stdout, stderr, code := o.run(t, "deploy", "lab", "--release", dir)
		last := strings.Split(strings.TrimSpace(stderr), "\n")
		if code != 2 || !strings.Contains(last[len(last)-1], want) {
			t.Errorf("--release %q: exit %d\n%s%s", dir, code, stdout, stderr)
		}
	}
	if diff := before.Diff(o.lab.Snapshot(t, "/srv", "/etc", "/usr/local")); len(diff) > 0 {
		t.Errorf("refused releases changed the host:\n%s", strings.Join(diff, "\n"))
	}
}

func TestDeployHealsABrokenLauncher(t *testing.T) {
	o := ready(t)
	dir := o.release(t, "launcher")
	o.must(t, "deploy", "lab", "--release", dir)
	launcher := "/srv/vs/releases/" + o.current(t) + "/bin/video-studio-landlock-runner"
	whole := o.lab.MustExec(t, "sha256sum", launcher)
	for _, slip := range []string{`printf '#!/bin/sh\nexit 125\n' >"$0"`, `chmod 0700 "$0"`, `rm "$0"`, `rm "$0"; ln -s /bin/true "$0"`} {
		o.lab.MustExec(t, "/bin/sh", "-c", slip, launcher)
		o.must(t, "deploy", "lab", "--release", dir)
		if got := o.lab.MustExec(t, "sha256sum", launcher); got != whole {
			t.Errorf("%s: not healed: %s", slip, got)
		}
		if got := o.lab.MustExec(t, "stat", "-c", "%a %F", launcher); got != "755 regular file" {
			t.Errorf("%s: the launcher is %s", slip, got)
		}
	}
}

func TestPreflightRefusesAHostThatIsNotReady(t *testing.T) {
	o := ready(t)
	unit := "/srv/vs/home/.config/systemd/user/vs-agent.service"
	reload := `XDG_RUNTIME_DIR=/run/user/$(id -u vs) setpriv --reuid vs --regid vs --init-groups systemctl --user daemon-reload`
	for name, c := range map[string]struct{ slip, heal, want string }{
		"no sudo rule": {"mv /etc/sudoers.d/agentworks-slots /root/rule", "mv /root/rule /etc/sudoers.d/agentworks-slots", "agentworks-deploy provision lab"},
		"no slotctl":   {"mv /usr/local/libexec/agentworks/slotctl /root/slotctl", "mv /root/slotctl /usr/local/libexec/agentworks/slotctl", "agentworks-deploy provision lab"},
		"no linger":    {"rm /var/lib/systemd/linger/vs", "touch /var/lib/systemd/linger/vs", "agentworks-deploy provision lab"},
		"no half":      {"mv /usr/local/libexec/agentworks/agentworks-deploy /root/half", "mv /root/half /usr/local/libexec/agentworks/agentworks-deploy", "agentworks-deploy provision lab"},
		"no unit":      {"mv " + unit + " /root/unit; " + reload, "mv /root/unit " + unit + "; " + reload, "unit vs-agent.service is not-found"},
	} {
		t.Run(name, func(t *testing.T) {
			o.lab.MustExec(t, "/bin/sh", "-c", c.slip)
			before := o.lab.Snapshot(t, "/srv")
			stdout, stderr, code := o.run(t, "deploy", "lab", "--provision=false", "--release", o.release(t, "refused"))
			after := o.lab.Snapshot(t, "/srv")
			o.lab.MustExec(t, "/bin/sh", "-c", c.heal)
			if code != 1 || !strings.Contains(stdout+stderr, c.want) {
				t.Errorf("exit %d, want 1 and %q\n%s%s", code, c.want, stdout, stderr)
			}
			if diff := before.Diff(after); len(diff) > 0 {
				t.Errorf("the refused deploy changed %q", diff)
			}
		})
	}
}

func TestDeployBadWords(t *testing.T) {
	o := ready(t)
	file := filepath.Join(t.TempDir(), "release.txt")
	if err := os.WriteFile(file, []byte("no tar"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := o.lab.Snapshot(t, "/srv")
	for want, args := range map[string][]string{
		"nowhere":                    {"deploy", "nowhere"},
		"deploy rts needs --release": {"deploy", "rts"},
		"no such file":               {"deploy", "lab", "--release", "/nonexistent"},
		"it is no tar":               {"deploy", "lab", "--release", file},
		"unknown release vs-00000000-20200101000000: lab has vs-": {"deploy", "lab", "--release", "vs-00000000-20200101000000"},
		": lab has vs-":  {"deploy", "lab", "--plan", "--release", "vs-00000000-20200101000000"},
		"name the hosts": {"deploy"},
		"unknown flag":   {"deploy", "lab", "--no-such-flag"},
		"is no release":  {"deploy", "lab", "--release", t.TempDir()},
	} {
		_, stderr, code := o.run(t, args...)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit %d, want 2 and %q\n%s", args, code, want, stderr)
		}
	}
	if diff := before.Diff(o.lab.Snapshot(t, "/srv")); len(diff) > 0 {
		t.Errorf("wrong words changed %q", diff)
	}
}

func TestR03FailedSelfTestIsLoudAndTheReleaseStays(t *testing.T) {
	o := ready(t)
	o.lab.MustExec(t, "chmod", "0644", "/etc/agentworks/slots.json")
	old := o.current(t)
	stdout, stderr, code := o.run(t, "deploy", "lab", "--provision=false", "--release", o.release(t, "table"))
	now := o.current(t)
	o.lab.MustExec(t, "chmod", "0640", "/etc/agentworks/slots.json")
	if code != 1 || now == old || !strings.Contains(stderr, "release "+now+" is live on lab") || !strings.Contains(stderr, "nothing was rolled back") || !strings.HasSuffix(stderr, "; to go back: agentworks-deploy deploy lab --release "+old+"\n") {
		t.Errorf("exit %d, current %s, was %s\n%s", code, now, old, stderr)
	}
	if !regexp.MustCompile(`(?m)^FAIL slot-table.* -- fix: `).MatchString(stdout) {
		t.Errorf("no FAIL with its fix:\n%s", stdout)
	}
}

func TestB31ReadersNeverMissCurrentWhileDeploysRun(t *testing.T) {
	o := ready(t)
	a, b := o.release(t, "reader a"), o.release(t, "reader b")
	o.must(t, "deploy", "lab", "--provision=false", "--release", a)
	o.lab.MustExec(t, "/bin/sh", "-c", `(while ! [ -e /tmp/stop ]; do cat /srv/vs/current/frontend/index.html >/dev/null 2>>/tmp/missed; done; touch /tmp/stopped) >/dev/null 2>&1 &`)
	for _, dir := range []string{b, a, b} {
		o.must(t, "deploy", "lab", "--provision=false", "--release", dir)
	}
	missed := o.lab.MustExec(t, "/bin/sh", "-c", "touch /tmp/stop; while ! [ -e /tmp/stopped ]; do sleep 0.05; done; cat /tmp/missed; rm /tmp/stop /tmp/stopped /tmp/missed")
	if missed != "" {
		t.Errorf("readers missed current: %s", missed)
	}
}

// A tar of a folder is that folder.
func TestDeployTakesATar(t *testing.T) {
	o := ready(t)
	dir := o.release(t, "from a tar")
	file := filepath.Join(t.TempDir(), "release.tar.gz")
	if said, err := exec.Command("tar", "-C", dir, "-czf", file, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	o.must(t, "deploy", "lab", "--release", file)
	if got := o.lab.ReadFile(t, "/srv/vs/current/frontend/index.html"); got != "from a tar" {
		t.Errorf("the page is %q", got)
	}
	id := o.current(t)
	stdout := o.must(t, "deploy", "lab", "--release", dir)
	if o.current(t) != id || !strings.Contains(stdout, "deploy: nothing to do") {
		t.Errorf("the folder is another release than its tar:\n%s", stdout)
	}
}

const (
	killLabs  = 5
	killsEach = 10
)

// Killed at any moment, on either side, the next run ends where one that nobody
// disturbed ends.
func TestDeployKilledAnywhereIsFinishedByTheNext(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var labs sync.WaitGroup
	defer labs.Wait()
	for n := range killLabs { // side by side: most of a deploy is waiting for steady health
		run := func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			o := operatorOf(t, labtest.New(t, labtest.Reference()))
			// Each deploy's self-test looks into every free slot: few of them will do.
			o.env = []string{"AGENTWORKS_DEPLOY_SLOTS_COUNT=3"}
			o.first(t)
			began := time.Now()
			o.must(t, "deploy", "lab", "--provision=false", "--release", o.release(t, "page 00"))
			whole := time.Since(began)
			want := o.scan(t)
			for i := range killsEach {
				page := fmt.Sprintf("page %02d", i+1)
				dir := o.release(t, page)
				at := time.Duration(random.Int64N(int64(whole)))
				half := random.IntN(2) == 0
				o.killed(t, at, half, "deploy", "lab", "--provision=false", "--release", dir)
				o.must(t, "deploy", "lab", "--provision=false", "--release", dir)
				if got := o.lab.ReadFile(t, "/srv/vs/current/frontend/index.html"); got != page {
					t.Errorf("the page is %q, want %q", got, page)
				}
				if diff := want.Diff(o.scan(t)); len(diff) > 0 {
					t.Errorf("killed after %s of %s (half: %v), the host differs: %q", at, whole, half, diff)
				}
			}
		}
		labs.Go(func() { t.Run(strconv.Itoa(n), run) })
	}
}

var ids = regexp.MustCompile(`vs-[0-9a-f]{8}-[0-9]{14}`)

// scan removes the releases before the live one and scans the host, the live
// one under a fixed name. What holds ids and times is compared by owner, mode and
// size alone.
func (o operator) scan(t *testing.T) labtest.Snapshot {
	t.Helper()
	live := o.current(t)
	o.lab.MustExec(t, "/bin/sh", "-c", `cd /srv/vs/releases && for r in vs-*; do [ "$r" = "$0" ] || rm -r "$r"; done`, live)
	scan := labtest.Snapshot{}
	for path, e := range o.lab.Snapshot(t, "/srv", "/etc", "/usr/local", "/var/lib/agentworks-deploy", "/run/agentworks-deploy") {
		switch filepath.Base(path) {
		case "manifest.json", "index.html":
			e.SHA256 = ""
		case "deploy.history.json": // one entry more each time
			e.SHA256, e.Size = "", 0
		}
		e.Link = ids.ReplaceAllString(e.Link, "<id>")
		scan[strings.ReplaceAll(path, live, "<id>")] = e
	}
	return scan
}

// killed starts a command line and kills it, or the half on the host, after
// some time; it returns when neither is left.
func (o operator) killed(t *testing.T, after time.Duration, half bool, args ...string) {
	t.Helper()
	cmd := o.command(context.Background(), args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after) // the moment itself is what is random here
	victims := []int{cmd.Process.Pid}
	if half {
		victims = halves(cmd.Process.Pid)
	}
	for _, pid := range victims {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
	_ = cmd.Wait() // whatever it says, it was disturbed
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, _, code := o.lab.Exec(t, "pgrep", "-f", "agentworks-deploy on-host"); code == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the half on the host outlived its caller")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// halves are the processes below pid that serve a verb on the host.
func halves(pid int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		if f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(f) > 1 {
			parent, _ := strconv.Atoi(f[1])
			children[parent] = append(children[parent], child)
		}
	}
	var found []int
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		for _, child := range children[queue[0]] {
			queue = append(queue, child)
			if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child)); err == nil && bytes.Contains(line, []byte("\x00on-host")) {
				found = append(found, child)
			}
		}
	}
	return found
}
