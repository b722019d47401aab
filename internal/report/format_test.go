package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

func fix(argv ...string) *Fix { return &Fix{Where: OnHost, Argv: argv} }

// The reports that the golden files show; each file's name ends in the exit code.
func healthy() []Row {
	return []Row{
		{State: Pass, Check: "slotctl-config", Detail: "/usr/local/libexec/agentworks/slotctl.json readable"},
		{State: Pass, Check: "slotctl-allowed-exec", Detail: "lists the launcher"},
		{State: Pass, Check: "runner-reachable", Slot: "slot01", Detail: "the launcher answers"},
		{State: Skip, Check: "pwd-code-project", Slot: "slot02", Detail: "the user has no Code project"},
		{State: Warn, Check: "secret-missing", Detail: "<docs>/Workflow/wf1/workflow.json: selected_secrets names GONE, which exists nowhere"},
		{State: Info, Check: "gateway", Detail: "not configured"},
	}
}

func broken() []Row {
	const cause = "/srv/vs/releases is not traversable"
	rows := []Row{{State: Pass, Check: "slotctl-config", Detail: "/usr/local/libexec/agentworks/slotctl.json readable"}}
	for _, slot := range []string{"slot01", "slot02"} {
		rows = append(rows,
			Row{State: Fail, Check: "runner-reachable", Slot: slot, Detail: "/srv/vs/releases is not traversable for " + slot, Cause: cause, Fix: fix("chmod", "0711", "/srv/vs/releases")},
			Row{State: Fail, Check: "pwd-docs-root", Slot: slot, Detail: "<docs>: slotctl: cannot start the launcher", Cause: cause, Fix: fix("chmod", "0711", "/srv/vs/releases")})
	}
	return append(rows,
		Row{State: Fail, Check: "trees-closed", Detail: "<docs>/<user> is open to others", Fix: fix("chmod", "o=", "/srv/vs/data/docs/_users/it's me")},
		Row{State: Fail, Check: "slot-hygiene", Slot: "slot07", Detail: "odd name a\x1b[31m\xff", Fix: fix("rm", "a\x1b[31m\xff")},
		Row{State: Fail, Check: "launcher", Detail: "grants everything", Fix: &Fix{Where: Operator, Argv: []string{"agentworks-deploy", "deploy", "<host>"}, Note: "put the host's name in"}},
		Row{State: Error, Check: "identity", Slot: "slot02", Detail: "no answer within 30 s"},
		Row{State: Warn, Check: "acl-present", Detail: "/srv/vs/releases has an ACL entry", Fix: fix("setfacl", "-b", "/srv/vs/releases")})
}

func notChecked() []Row {
	return []Row{
		{State: Pass, Check: "slotctl-config", Detail: "readable"},
		{State: Error, Check: "runner-reachable", Slot: "slot01", Detail: "no answer within 30 s"},
	}
}

func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name   string
		rows   []Row
		strict bool
		exit   int
	}{
		{"healthy", healthy(), false, 0},
		{"strict", healthy(), true, 1},
		{"broken", broken(), false, 1},
		{"not-checked", notChecked(), false, 3},
		{"empty", nil, false, 0},
	} {
		r := New("lab", "basic", "vs-1a2b3c4d-20260101120000", c.rows, c.strict)
		if r.Exit != c.exit {
			t.Errorf("%s: exit %d, want %d", c.name, r.Exit, c.exit)
		}
		for _, format := range Formats() {
			var out bytes.Buffer
			if err := r.Write(&out, format, Style{}); err != nil {
				t.Fatalf("%s as %s: %v", c.name, format, err)
			}
			golden(t, fmt.Sprintf("%s.exit%d.%s", c.name, r.Exit, format), out.Bytes())
			noEscapes(t, out.Bytes())
		}
	}
}

// Several hosts are one document, of the same rows and the one verdict.
func TestGoldenOfSeveralHosts(t *testing.T) {
	reports := []Report{
		New("good", "basic", "vs-1a2b3c4d-20260101120000", healthy(), false),
		New("bad/i-1|\x1b", "basic", "", broken(), false),
		New("lost", "basic", "", []Row{{State: Error, Check: "host", Detail: "it does not answer"}}, false),
	}
	for name, list := range map[string][]Report{"fleet": reports, "fleet-good": reports[:1]} {
		f := Fleet{V: 1, Reports: list}
		rows, failures, errs := 0, 0, 0
		for _, r := range list {
			f.Exit = Worst(f.Exit, r.Exit)
			for _, row := range r.Rows {
				if row.State != Info {
					rows++
				}
			}
			failures, errs = failures+r.Summary.Failed, errs+r.Summary.NotChecked
		}
		for _, format := range Formats() {
			var out bytes.Buffer
			if err := f.Write(&out, format, Style{}); err != nil {
				t.Fatalf("%s as %s: %v", name, format, err)
			}
			golden(t, fmt.Sprintf("%s.exit%d.%s", name, f.Exit, format), out.Bytes())
			noEscapes(t, out.Bytes())
			text := out.String()
			switch format {
			case "junit":
				var suites junitSuites
				if err := xml.Unmarshal(out.Bytes(), &suites); err != nil || len(suites.Suites) != len(list) || suites.Tests != rows || suites.Failures != failures || suites.Errors != errs {
					t.Errorf("%s: %v, %+v", name, err, suites)
				}
			case "tap":
				points := regexp.MustCompile(`(?m)^(not )?ok \d+ - `).FindAllString(text, -1)
				if !strings.HasPrefix(text, fmt.Sprintf("TAP version 14\n1..%d\n", rows)) || len(points) != rows || strings.Count(text, "\n1..") != 1 {
					t.Errorf("%s: %d points of %d rows:\n%s", name, len(points), rows, text)
				}
			case "nagios":
				status, _, _ := strings.Cut(text, "\n")
				if strings.Count(text, "|") != 1 || strings.Count(status, "|") != 1 || !strings.HasPrefix(status, "SLOTCHECK ") {
					t.Errorf("%s:\n%s", name, text)
				}
			case "html":
				if strings.Count(text, "<html") != 1 || strings.Count(text, "<h1>") != 1 {
					t.Errorf("%s: not one page:\n%s", name, text)
				}
			}
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; got:\n%s", file, got)
	}
}

// TestB71NoEscapeBytesOffTerminal: no format emits an ESC byte unless colour is
// asked for, whatever the rows hold.
func noEscapes(t *testing.T, out []byte) {
	t.Helper()
	if bytes.ContainsAny(out, "\x1b\x07\x9b") || bytes.Contains(out, []byte{0}) {
		t.Errorf("control bytes in the output:\n%q", out)
	}
}

func TestB71ColourOnlyWhenAsked(t *testing.T) {
	r := New("lab", "basic", "", broken(), false)
	var plain, coloured bytes.Buffer
	if err := errors.Join(r.Write(&plain, "table", Style{}), r.Write(&coloured, "table", Style{Colour: true})); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(coloured.Bytes(), []byte("\x1b[1;31mFAIL\x1b[0m runner-reachable [slot01]: ")) {
		t.Errorf("no red FAIL in:\n%s", coloured.String())
	}
	stripped := coloured.String()
	for _, code := range []string{"\x1b[32m", "\x1b[1;31m", "\x1b[33m", "\x1b[1;35m", "\x1b[36m", "\x1b[0m"} {
		stripped = strings.ReplaceAll(stripped, code, "")
	}
	if stripped != plain.String() {
		t.Errorf("colour changes the text:\n%s\n%s", stripped, plain.String())
	}
}

func TestB59SameExitInEveryFormatAndOrder(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for _, rows := range [][]Row{healthy(), broken(), notChecked()} {
		want := Verdict(rows, false)
		for range 100 {
			random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			r := New("lab", "basic", "", rows, false)
			if r.Exit != want || r.Summary != Count(rows) {
				t.Fatalf("exit %d, want %d", r.Exit, want)
			}
			for _, format := range Formats() {
				if err := r.Write(io.Discard, format, Style{}); err != nil {
					t.Fatal(err)
				}
			}
			if r.Exit != want {
				t.Fatalf("writing changed the exit code to %d", r.Exit)
			}
		}
	}
}

func TestB60JUnitIsValidXML(t *testing.T) {
	var out bytes.Buffer
	if err := New("lab", "", "", broken(), false).Write(&out, "junit", Style{}); err != nil {
		t.Fatal(err)
	}
	var suites junitSuites
	if err := xml.Unmarshal(out.Bytes(), &suites); err != nil {
		t.Fatalf("%v in:\n%s", err, out.String())
	}
	if suites.XMLName.Local != "testsuites" || len(suites.Suites) != 1 || suites.Suites[0].Failures != 7 || suites.Suites[0].Errors != 1 {
		t.Errorf("got %+v", suites)
	}
	if text := suites.Suites[0].Cases[7].Failure.Text; !strings.Contains(text, "agentworks-deploy deploy '<host>'") {
		t.Errorf("fix lost: %q", text)
	}
}

func TestB61JSONIsOneDocument(t *testing.T) {
	var out bytes.Buffer
	if err := New("lab", "", "", broken(), false).Write(&out, "json", Style{}); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(&out)
	var r Report
	if err := dec.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if err := dec.Decode(&r); err != io.EOF {
		t.Errorf("after the document: %v", err)
	}
}

func TestB64WarningsDoNotFail(t *testing.T) {
	rows := []Row{{State: Pass}, {State: Warn}}
	if got := Verdict(rows, false); got != ExitOK {
		t.Errorf("exit %d", got)
	}
	if got := Verdict(rows, true); got != ExitState {
		t.Errorf("strict: exit %d", got)
	}
}

func TestB65OneSharedCauseIsSaidOnce(t *testing.T) {
	var rows []Row
	for i := range 32 {
		rows = append(rows, Row{State: Fail, Check: "runner-reachable", Slot: fmt.Sprintf("slot%02d", i+1), Detail: "/srv/vs/releases is not traversable", Cause: "/srv/vs/releases is not traversable", Fix: fix("chmod", "0711", "/srv/vs/releases")})
	}
	var out bytes.Buffer
	if err := New("lab", "", "", rows, false).Write(&out, "table", Style{}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\nCAUSE /srv/vs/releases is not traversable: 32 failures of 32 slots -- fix: chmod 0711 /srv/vs/releases\n"); n != 1 {
		t.Errorf("the cause stands %d times in:\n%s", n, out.String())
	}
	for i := range 32 {
		line := fmt.Sprintf("\nFAIL runner-reachable [slot%02d]: /srv/vs/releases is not traversable -- fix: chmod 0711 /srv/vs/releases\n", i+1)
		if strings.Count(out.String(), line) != 1 {
			t.Errorf("no line of its own:%s", line)
		}
	}
}

func TestB70ControlBytesAreEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"plain ü 漢":     "plain ü 漢",
		"a\x1b[31m\xff": `a\x1b[31m\xff`,
		"a\nb\tc\r":     `a\nb\tc\x0d`,
		"\u202edcb":     `\u202edcb`,
		"\u009b31m":     `\u009b31m`,
		"\ufffd":        "\ufffd",
		"\U000e0001":    `\U000e0001`,
		"":              "",
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestB73LongWordsStayWhole(t *testing.T) {
	long := "/" + strings.Repeat("a-long-name/", 20) + "end"
	rows := []Row{{State: Fail, Check: strings.Repeat("check", 12), Slot: "slot01", Detail: long + " is not traversable", Fix: fix("chmod", "0711", long)}}
	var out bytes.Buffer
	if err := New("lab", "", "", rows, false).Write(&out, "table", Style{}); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), long) != 3 || strings.Count(out.String(), "\n") != 4 {
		t.Errorf("wrapped or cut:\n%s", out.String())
	}
}

func TestB85NotCheckedIsNoPass(t *testing.T) {
	r := New("lab", "", "", notChecked(), false)
	if r.Exit != ExitUnfinished {
		t.Errorf("exit %d", r.Exit)
	}
	var out bytes.Buffer
	if err := r.Write(&out, "table", Style{}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "slot self-test: 1 passed, 0 failed, 0 skipped, 1 not checked\n") {
		t.Errorf("got:\n%s", out.String())
	}
}

func TestFixIsQuotedWordByWord(t *testing.T) {
	for _, c := range []struct {
		fix  *Fix
		want string
	}{
		{fix("chmod", "0711", "/srv/vs/releases"), "fix: chmod 0711 /srv/vs/releases"},
		{fix("rm", "a b", "$(id)", "it's", "", "u:x=1"), `fix: rm 'a b' '$(id)' 'it'\''s' '' u:x=1`},
		{fix("rm", "a\nb"), "no fix to run: a name in it holds control bytes"},
		{&Fix{Where: OnHost, Note: "decide who keeps the slot"}, "to do by hand: decide who keeps the slot"},
		{&Fix{Where: Operator, Argv: []string{"agentworks-deploy", "deploy", "<host>"}, Note: "name the host"}, "fix: agentworks-deploy deploy '<host>' (not runnable as it stands: name the host)"},
	} {
		if got := c.fix.Line(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestSteps(t *testing.T) {
	for name, rows := range map[string][]Row{
		"steps-changed": {
			{State: Changed, Check: "account", Slot: "slot01", Detail: "made with id 70001"},
			{State: OK, Check: "sudo-rule", Detail: "/etc/sudoers.d/agentworks-slots"},
			{State: Warn, Check: "groups", Detail: "the service runs without its new groups", Fix: fix("systemctl", "restart", "user@70000.service")},
		},
		"steps-planned": {{State: Planned, Check: "account", Slot: "slot01", Detail: "would be made"}},
		"steps-nothing": {{State: OK, Check: "account", Detail: "50 accounts"}},
		"steps-refused": {{State: Fail, Check: "accounts", Slot: "slot07", Detail: "home is /elsewhere"}},
	} {
		var out bytes.Buffer
		if err := WriteSteps(&out, "provision", rows, Style{}); err != nil {
			t.Fatal(err)
		}
		golden(t, name, out.Bytes())
	}
}

func BenchmarkTableOf500Slots(b *testing.B) {
	var rows []Row
	for i := range 500 {
		for j := range 30 {
			rows = append(rows, Row{State: Pass, Check: fmt.Sprintf("check-%d", j), Slot: fmt.Sprintf("slot%02d", i+1), Detail: "as it should be"})
		}
	}
	for b.Loop() {
		if err := New("lab", "full", "", rows, false).Write(io.Discard, "table", Style{}); err != nil {
			b.Fatal(err)
		}
	}
}
