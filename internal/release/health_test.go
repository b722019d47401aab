package release

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/units"
)

// stubManager is systemd as two scripts. Show is the shell text that answers
// "systemctl show"; $n counts those questions from 1, $dir is a scratch folder.
func stubManager(t *testing.T, show string) (m *units.Manager, calls func() string) {
	t.Helper()
	dir := t.TempDir()
	systemctl := fmt.Sprintf(`#!/bin/sh
dir=%[1]s
echo "$XDG_RUNTIME_DIR $*" >>$dir/calls
case " $* " in
*" show "*)
	n=$(($(cat $dir/n 2>/dev/null || echo 0) + 1)); echo $n >$dir/n
	%[2]s
	;;
*" restart "*) [ ! -e $dir/norestart ] || { echo "Job failed." >&2; exit 1; } ;;
esac
`, dir, show)
	journalctl := "#!/bin/sh\nfor i in $(seq 1 20); do echo \"line $i of $*\"; done\n"
	must(t, os.WriteFile(filepath.Join(dir, "systemctl"), []byte(systemctl), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "journalctl"), []byte(journalctl), 0o755))
	return &units.Manager{Systemctl: filepath.Join(dir, "systemctl"), Journalctl: filepath.Join(dir, "journalctl"), User: true, UID: 70001}, func() string {
		b, err := os.ReadFile(filepath.Join(dir, "calls"))
		must(t, err)
		return string(b)
	}
}

// unitText is one unit as systemctl show prints it, as a shell command.
func unitText(active, sub string, pid, restarts int) string {
	return fmt.Sprintf(`printf 'MainPID=%d\nNRestarts=%d\nResult=success\nId=vs-agent.service\nLoadState=loaded\nActiveState=%s\nSubState=%s\n'`, pid, restarts, active, sub)
}

// sickWait is what a test waits for services that never become well: long enough
// to look at them a few times on a busy machine.
const sickWait = time.Second

func testHealth(m *units.Manager, log io.Writer, urls ...string) *Health {
	return &Health{Manager: m, Units: []string{"vs-agent.service"}, URLs: urls, Deadline: time.Minute, Every: 5 * time.Millisecond, Samples: 3, Log: log}
}

func answering(t *testing.T, text func(n int) string) string {
	t.Helper()
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		fmt.Fprint(w, text(n))
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/api/health"
}

func TestB41HealthIsJudgedByContent(t *testing.T) {
	for text, want := range map[string]string{
		`{"status":"healthy"}`:            "",
		`{"ok":true}`:                     "",
		`{"ok":true,"status":"degraded"}`: "",
		` {"status":"healthy","drain":{"idle":true,"active":0}}`: "",
		`{"ok":false}`:                          "ok is false",
		`{"ok":false,"status":"healthy"}`:       "ok is false",
		`{"status":"unhealthy"}`:                "status is",
		`{"status":""}`:                         "status is",
		`{}`:                                    "neither",
		`["ok"]`:                                "not a JSON object",
		`"ok"`:                                  "not a JSON object",
		`<!doctype html><title>sign in</title>`: "not a JSON object",
		``:                                      "not a JSON object",
		`{"ok":"yes"}`:                          "health document",
		`{"ok":true`:                            "health document",
	} {
		_, err := parseHealth([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for text, idle := range map[string]bool{`{"ok":true}`: true, `{"ok":true,"drain":{"idle":false,"active":2}}`: false, `{"ok":true,"drain":{"active":0}}`: false} {
		if d, err := parseHealth([]byte(text)); err != nil || d.Idle != idle {
			t.Errorf("%s: idle %v, %v", text, d.Idle, err)
		}
	}
	m, _ := stubManager(t, unitText("active", "running", 7, 0))
	must(t, testHealth(m, io.Discard, answering(t, func(n int) string { return fmt.Sprintf(`{"ok":true,"n":%d}`, n) })).judge(context.Background()))
	h := testHealth(m, io.Discard, answering(t, func(int) string { return `{"ok":false}` }))
	h.Deadline = sickWait
	if err := h.judge(context.Background()); err == nil || !strings.Contains(err.Error(), "ok is false") || !strings.Contains(err.Error(), "not healthy within") {
		t.Error(err)
	}
}

func TestHealthStartsToCountWhenTheServiceIsUp(t *testing.T) {
	m, _ := stubManager(t, `if [ $n -lt 4 ]; then `+unitText("activating", "start", 0, 0)+`; else `+unitText("active", "running", 7, 0)+`; fi`)
	url := answering(t, func(n int) string {
		if n < 3 {
			return "starting"
		}
		return `{"ok":true}`
	})
	must(t, testHealth(m, io.Discard, url).judge(context.Background()))
}

func TestHealthFollowsNoRedirect(t *testing.T) {
	m, _ := stubManager(t, unitText("active", "running", 7, 0))
	good := answering(t, func(int) string { return `{"ok":true}` })
	srv := httptest.NewServer(http.RedirectHandler(good, http.StatusFound))
	defer srv.Close()
	h := testHealth(m, io.Discard, srv.URL)
	h.Deadline = sickWait
	if err := h.judge(context.Background()); err == nil || !strings.Contains(err.Error(), "302") {
		t.Error(err)
	}
}

func TestB40OneLuckySecondIsNotHealth(t *testing.T) {
	for name, c := range map[string]struct{ show, want string }{
		"crash loop": {`if [ $((n % 2)) = 0 ]; then ` + unitText("active", "running", 7, 1) + `; else ` + unitText("activating", "auto-restart", 0, 0) + `; fi`, "restarted by itself"},
		"given up":   {unitText("failed", "failed", 0, 0), "vs-agent.service is failed"},
		"other pids": {strings.Replace(unitText("active", "running", 7, 0), "MainPID=7", `MainPID='$n'`, 1), "not healthy within"},
		"exited":     {unitText("active", "exited", 0, 0), "active (exited)"},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := stubManager(t, c.show)
			h := testHealth(m, io.Discard)
			h.Deadline = sickWait
			if err := h.judge(context.Background()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestSkippedStartIsToldAtOnceWithItsCondition(t *testing.T) {
	show := strings.TrimSuffix(unitText("inactive", "dead", 0, 0), "'") + `ConditionResult=no\nConditionTimestampMonotonic=%s\n'`
	m, _ := stubManager(t, fmt.Sprintf(show, "77")+"\n\t;;\n*' cat '*) printf 'ConditionPathExists=/proc\\nConditionPathExists=/srv/vs/current/bin/x\\n'")
	err := testHealth(m, io.Discard).judge(context.Background())
	if err == nil || !strings.Contains(err.Error(), "a condition of its unit is not met: ConditionPathExists=/srv/vs/current/bin/x") || strings.Contains(err.Error(), "not healthy within") {
		t.Error(err)
	}
	// "no" also stands where no start was ever tried.
	m, _ = stubManager(t, fmt.Sprintf(show, "0"))
	if s, err := m.States(context.Background(), []string{"vs-agent.service"}); err != nil || s[0].Unmet {
		t.Error(s, err)
	}
}

func TestB43JournalOfAFailedUnitIsShown(t *testing.T) {
	m, _ := stubManager(t, unitText("failed", "failed", 0, 3))
	var log bytes.Buffer
	testHealth(m, &log).journals(context.Background(), 20)
	if n := strings.Count(log.String(), "\n  vs-agent: line "); n != 20 {
		t.Errorf("%d journal lines:\n%s", n, log.String())
	}
}

func TestManagerIsAskedWithARuntimeFolderOfOurs(t *testing.T) {
	m, calls := stubManager(t, unitText("failed", "failed", 0, 0))
	_, err := m.States(context.Background(), []string{"vs-agent.service"})
	must(t, err)
	must(t, m.Restart(context.Background(), []string{"vs-agent.service"}))
	got := calls()
	for _, want := range []string{
		"/run/user/70001 --no-ask-password --no-pager --user show ",
		"--user reset-failed -- vs-agent.service\n",
		"--user restart -- vs-agent.service\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	m.User = false
	_, err = m.States(context.Background(), []string{"vs-agent.service"})
	must(t, err)
	if last := lastLine(calls()); strings.Contains(last, "--user") || !strings.HasPrefix(last, " --no-ask-password") {
		t.Errorf("the host's manager was asked with %q", last)
	}
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n")
	return s[strings.LastIndexByte(s, '\n')+1:]
}

func TestB37StepSaysWhatItIsAtAndEndsInTime(t *testing.T) {
	var log bytes.Buffer
	s := &Steps{Log: &log, Every: 5 * time.Millisecond}
	err := s.Do(context.Background(), "transfer", 40*time.Millisecond, func(ctx context.Context) error {
		<-ctx.Done()
		return fmt.Errorf("read: %w", ctx.Err())
	})
	if report.CodeOf(err) != report.ExitUnfinished || err.Error() != "step transfer: not done within 40ms" {
		t.Errorf("%v (%d)", err, report.CodeOf(err))
	}
	if !strings.Contains(log.String(), "transfer: still at it after ") || !strings.HasPrefix(lastLine(log.String()), "transfer: failed after ") {
		t.Errorf("log:\n%s", log.String())
	}
}
