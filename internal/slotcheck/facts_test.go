package slotcheck

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/units"
)

func TestS02ConfigRows(t *testing.T) {
	tests := []struct {
		name       string
		breakIt    func(s *scratch)
		begin, end string
		stops      bool
	}{
		{"healthy", func(*scratch) {}, "PASS slotctl-config: ", "readable", false},
		{"missing", func(s *scratch) { s.must(os.Remove(s.config())) }, "FAIL slotctl-config: ", "does not exist -- fix: agentworks-deploy provision lab", true},
		{"not JSON", func(s *scratch) { s.write(s.config(), 0o644, "{") }, "FAIL slotctl-config: ", "agentworks-deploy provision lab", true},
		{"writable by others", func(s *scratch) { s.must(os.Chmod(s.config(), 0o666)) }, "FAIL slotctl-config: ", "chmod go-w SCRATCH/libexec/slotctl.json", false},
		{"not root's", func(s *scratch) { s.chown(s.config(), scratchService, 0) }, "FAIL slotctl-config: ", "chown root SCRATCH/libexec/slotctl.json", false},
		{"both", func(s *scratch) { s.chown(s.config(), scratchService, 0); s.must(os.Chmod(s.config(), 0o666)) }, "FAIL slotctl-config: ", "provision lab", false},
		{"its folder writable", func(s *scratch) { s.must(os.Chmod(filepath.Dir(s.config()), 0o777)) }, "FAIL slotctl-config: ", "chmod go-w SCRATCH/libexec", false},
		{"slotctl writable", func(s *scratch) { s.must(os.Chmod(s.slotctl(), 0o775)) }, "FAIL slotctl-config: ", "chmod go-w SCRATCH/libexec/slotctl", false},
		{"docs_root elsewhere", func(s *scratch) { s.replace(s.config(), `"docs_root":"`, `"docs_root":"/x`) }, "FAIL slotctl-docs-root: ", "provision lab", false},
		{"allowed_cwd without docs", func(s *scratch) { s.replace(s.config(), `"allowed_cwd":["`, `"allowed_cwd":["/x`) }, "FAIL slotctl-allowed-cwd: ", "provision lab", false},
		{"allowed_exec of another path", func(s *scratch) { s.replace(s.config(), "/releases/*/", "/other/*/") }, "FAIL slotctl-allowed-exec: ", "provision lab", false},
		{"no release", func(s *scratch) { s.must(os.Remove(s.host.Layout().Current())) }, "FAIL slotctl-allowed-exec: there is no launcher", "deploy lab", false},
		{"another prefix", func(s *scratch) { s.replace(s.config(), `"slot_prefix":"slot"`, `"slot_prefix":"cf"`) }, "FAIL slotctl-config: slot_prefix", "provision lab", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScratch(t)
			tt.breakIt(s)
			a := s.audit()
			rows := a.named("slotctl-config", a.loadConfig())
			if (a.config == nil) != tt.stops {
				t.Fatalf("stops = %v, want %v: %s", a.config == nil, tt.stops, lines(rows))
			}
			if a.config != nil {
				rows = append(rows, a.once(context.Background(), configChecks())...)
			}
			expectLine(t, rows, tt.begin, strings.ReplaceAll(tt.end, "SCRATCH", s.dir))
			want := 1
			if tt.name == "healthy" {
				want = 0
			}
			if n := report.Count(rows).Failed; n != want {
				t.Errorf("%d rows fail, want %d:\n%s", n, want, strings.Join(lines(rows), "\n"))
			}
		})
	}
}

func (s *scratch) replace(file, old, text string) {
	s.t.Helper()
	data, err := os.ReadFile(file)
	s.must(err)
	if !strings.Contains(string(data), old) {
		s.t.Fatalf("%s holds no %q", file, old)
	}
	s.must(os.WriteFile(file, []byte(strings.Replace(string(data), old, text, 1)), 0o644))
}

// TestP01DocsFixSaysWhoIsRight: provisioning again heals only where the host
// file and the service mean the same folder.
func TestP01DocsFixSaysWhoIsRight(t *testing.T) {
	s := newScratch(t)
	other := filepath.Join(s.dir, "data/docs")
	s.must(os.MkdirAll(other, 0o755))
	s.write(s.host.Layout().EnvFile(), 0o600, "AGENTWORKS_SLOTS=on\nWORKSPACE_DOCS_PATH="+other+"\nAGENTWORKS_SLOTCTL="+s.slotctl()+"\n")
	a := s.audit()
	a.loadConfig()
	rows := a.once(context.Background(), configChecks())
	expectLine(t, rows, "FAIL slotctl-docs-root: ", "make them one, then agentworks-deploy provision")
	for _, r := range rows {
		if r.Check == "slotctl-docs-root" && r.Fix.Argv != nil {
			t.Errorf("fix %q would write the wrong root again", r.Fix.Argv)
		}
	}
}

func TestDocsRootBehindALink(t *testing.T) {
	s := newScratch(t)
	link := filepath.Join(s.dir, "docs")
	s.must(os.Symlink(s.host.Layout().Docs, link))
	s.write(s.host.Layout().EnvFile(), 0o600, "AGENTWORKS_SLOTS=on\nWORKSPACE_DOCS_PATH="+link+"\nAGENTWORKS_SLOTCTL="+s.slotctl()+"\n")
	a := s.audit()
	a.loadConfig()
	if rows := a.once(context.Background(), configChecks()); report.Count(rows).Failed > 0 {
		t.Errorf("%s", strings.Join(lines(rows), "\n"))
	}
	if f, why, err := a.project(subject{Slot: "slot01", User: "u1"}, crewProjects); err != nil || f.Path == "" {
		t.Errorf("project: %+v, %q, %v", f, why, err)
	}
}

func TestT01TableRows(t *testing.T) {
	tests := []struct {
		name    string
		breakIt func(s *scratch)
		want    []string // begin and end of each line
	}{
		{"healthy", func(*scratch) {}, []string{"PASS slot-table: |readable"}},
		{"root:root", func(s *scratch) { s.chown(s.table(), 0, 0) }, []string{"FAIL slot-table-group: |-- fix: chgrp vs SCRATCH/etc/slots.json"}},
		{"0644", func(s *scratch) { s.must(os.Chmod(s.table(), 0o644)) }, []string{"FAIL slot-table-mode: |-- fix: chmod 0640 SCRATCH/etc/slots.json"}},
		{"owned by the service", func(s *scratch) { s.chown(s.table(), scratchService, scratchService) }, []string{"FAIL slot-table-owner: |-- fix: chown root SCRATCH/etc/slots.json"}},
		{"absent", func(s *scratch) { s.must(os.Remove(s.table())) }, []string{"FAIL slot-table-read: |-- fix: agentworks-deploy provision lab"}},
		{"not JSON", func(s *scratch) { s.write(s.table(), 0o640, `{"slots":`) }, []string{"FAIL slot-table-read: |"}},
		{"a key that is no slot", func(s *scratch) { s.write(s.table(), 0o640, `{"slots":{"slotx":"u1"}}`) }, []string{"FAIL slot-table-read: |"}},
		{"all wrong", func(s *scratch) { s.chown(s.table(), 1, 1); s.must(os.Chmod(s.table(), 0o666)) },
			[]string{"FAIL slot-table-owner: |", "FAIL slot-table-group: |", "FAIL slot-table-mode: |"}},
		{"a folder", func(s *scratch) { s.must(os.Remove(s.table())); s.must(os.Mkdir(s.table(), 0o755)) }, []string{"FAIL slot-table-read: |"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScratch(t)
			tt.breakIt(s)
			a := s.audit()
			rows := a.loadTable()
			if len(rows) != len(tt.want) {
				t.Errorf("%d rows, want %d:\n%s", len(rows), len(tt.want), strings.Join(lines(rows), "\n"))
			}
			for _, w := range tt.want {
				begin, end, _ := strings.Cut(strings.ReplaceAll(w, "SCRATCH", s.dir), "|")
				expectLine(t, rows, begin, end)
			}
			for _, l := range lines(rows) {
				if strings.Contains(l, "u1") {
					t.Errorf("%q tells a user (case S-07)", l)
				}
			}
		})
	}
}

func TestSlotsAreChosenAsWritten(t *testing.T) {
	names := func(a *audit) string {
		var out []string
		for _, s := range a.slots {
			out = append(out, s.Slot+"="+s.User)
		}
		return strings.Join(out, " ")
	}
	tests := []struct {
		name, table, test string
		slots             string
		rows              []string
	}{
		// slot50 is there and has its home elsewhere, so it is not ours.
		{"highest that fits", `{"slots":{"slot02":"u2","slot01":"u1"}}`, "", "slot01=u1 slot02=u2 slot49=", []string{"PASS slot-table-count: |2 assigned slot(s); test slot slot49"}},
		{"asked for", `{"slots":{"slot01":"u1"}}`, "slot02", "slot01=u1 slot02=", []string{"PASS slot-table-count: |1 assigned slot(s); test slot slot02"}},
		{"asked for and held", `{"slots":{"slot01":"u1"}}`, "slot01", "slot01=u1", []string{"PASS slot-table-count: |no test slot", "FAIL slot-accounts: slot01 cannot be the test slot: it holds somebody|"}},
		{"asked for and not ours", `{"slots":{}}`, "slot50", "", []string{"FAIL slot-accounts: slot50 cannot be the test slot: the account slot50 has the home /elsewhere and not |"}},
		{"nobody", `{"slots":{}}`, "", "slot49=", []string{"PASS slot-table-count: |0 assigned slot(s); test slot slot49"}},
		{"no account", `{"slots":{"slot03":"u3"}}`, "", "slot49=", []string{"FAIL slot-account [slot03]: |-- fix: agentworks-deploy provision lab"}},
		{"somebody's account", `{"slots":{"slot50":"u3"}}`, "", "slot49=", []string{
			"FAIL slot-account [slot50]: the table assigns it, and it is not the slot's account: the account slot50 has the home /elsewhere|-- fix: look which account is the slot's: where another one has its id, take that one away; where nobody needs slot50 as it is, userdel it, and provision"}},
		{"all held", `{"slots":{"slot01":"u1","slot02":"u2","slot49":"u3"}}`, "", "slot01=u1 slot02=u2 slot49=u3", []string{"PASS slot-table-count: |3 assigned slot(s); no test slot"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newScratch(t)
			s.write(s.table(), 0o640, tt.table)
			a := s.audit(func(ask *Ask) { ask.TestSlot = tt.test })
			a.loadTable()
			rows := a.selectSlots()
			if got := names(a); got != tt.slots {
				t.Errorf("slots %q, want %q", got, tt.slots)
			}
			for _, w := range tt.rows {
				begin, end, _ := strings.Cut(w, "|")
				expectLine(t, rows, begin, end)
			}
		})
	}
	t.Run("nothing to probe", func(t *testing.T) {
		s := newScratch(t)
		s.write(s.table(), 0o640, `{"slots":{}}`)
		s.host.Paths.App = filepath.Join(s.dir, "app2") // no home fits
		s.write(s.host.Layout().EnvFile(), 0o600, "AGENTWORKS_SLOTS_FILE="+s.table()+"\n")
		a := s.audit()
		a.loadTable()
		expectLine(t, a.selectSlots(), "FAIL slot-accounts: ", "-- fix: agentworks-deploy provision lab")
	})
}

func TestS09FoldersAreChosenAsWritten(t *testing.T) {
	s := newScratch(t)
	docs := s.host.Layout().Docs
	mk := func(rel string) { s.must(os.MkdirAll(filepath.Join(docs, rel), 0o755)) }
	mk("_users/u4/" + crewProjects + "/.hidden")
	mk("_users/u4/" + crewProjects + "/b")
	s.must(os.Symlink("b", filepath.Join(docs, "_users/u4", crewProjects, "a")))
	s.write(filepath.Join(docs, "_users/u4", crewProjects, "aa"), 0o644, "a file")
	mk("_users/u4/" + crewProjects + "/\xff")
	mk("_users/u5/Chats")
	s.must(os.Symlink("../../u1/Chats/Work", filepath.Join(docs, "_users/u5/Chats/Work")))
	s.must(os.Symlink("u1", filepath.Join(docs, "_users/u6")))
	s.write(filepath.Join(docs, "_users/u7/Chats/Work"), 0o644, "a file")
	a := s.audit()
	for _, tt := range []struct{ user, rel, path, why string }{
		{"u1", crewProjects, docs + "/_users/u1/Chats/Work/projects/u1crew", ""},
		{"u2", crewProjects, "", "holds no folder"},
		{"u2", codeProjects, "", "does not exist"},
		{"u4", crewProjects, docs + "/_users/u4/Chats/Work/projects/b", ""},
		{"u5", crewProjects, "", "a link on the way"},
		{"u6", crewProjects, "", "a link on the way"},
		{"u7", crewProjects, "", "is not a folder"},
		{"u9", crewProjects, "", "does not exist"},
	} {
		f, why, err := a.project(subject{Slot: "slot01", User: tt.user}, tt.rel)
		if err != nil || f.Path != tt.path || !strings.Contains(why, tt.why) || (tt.why == "") != (why == "") {
			t.Errorf("%s %s: %+v, %q, %v; want %q, %q", tt.user, tt.rel, f, why, err, tt.path, tt.why)
		}
		if strings.Contains(f.Show+why, tt.user+"/") {
			t.Errorf("%s: %q %q tell who (case S-07)", tt.user, f.Show, why)
		}
	}
	f, why, err := a.project(subject{Slot: "slot49"}, codeProjects)
	if err != nil || why != "" || f.Path != s.host.Layout().SlotState("slot49") {
		t.Errorf("the test slot: %+v, %q, %v; want its own state folder", f, why, err)
	}
}

func TestS11SettingsComeFromTheRunningService(t *testing.T) {
	s := newScratch(t)
	l := s.host.Layout()
	s.write(l.EnvFile(), 0o600, "AGENTWORKS_SLOTS=\"on\"\r\nAGENTWORKS_SLOTS_FILE=/from/file\nCAPLAYER_SERVICE_TOKEN=secret\nGLOBAL_SECRET_X=secret\n")
	get := func() (settings, string, error) { return loadSettings(context.Background(), s.sys, &s.host) }

	got, note, err := get()
	if err != nil || !strings.Contains(note, "is not running") || got[keySlots] != "on" || got[keyTable] != "/from/file" || len(got) != 2 {
		t.Errorf("not running: %v, %q, %v", got, note, err)
	}

	pid := 4242
	s.sys.Unit = func(_ context.Context, name string) (units.Running, error) {
		if name != "vs-workspace.service" {
			t.Errorf("asked for %s", name)
		}
		return units.Running{PID: pid, State: "active"}, nil
	}
	s.write(filepath.Join(s.sys.Proc, strconv.Itoa(pid), "environ"), 0o400,
		"AGENTWORKS_SLOTS=optin\x00AGENTWORKS_SLOTS_FILE=/etc/agentworks/vs2/slots.json\x00AGENTWORKS_SLOTS_FILE=/second\x00GLOBAL_SECRET_X=secret\x00AUTH_SECRET=x\x00")
	got, note, err = get()
	if err != nil || note != "" || got[keySlots] != "optin" || got[keyTable] != "/etc/agentworks/vs2/slots.json" || len(got) != 2 {
		t.Errorf("running: %v, %q, %v", got, note, err)
	}

	pid = 4243 // runs, and its environment cannot be read: never the file
	if got, _, err = get(); err == nil {
		t.Errorf("running but unreadable: %v, want an error", got)
	}
	s.sys.Unit = func(context.Context, string) (units.Running, error) { return units.Running{}, errors.New("no answer") }
	if got, _, err = get(); err == nil {
		t.Errorf("manager without an answer: %v, want an error", got)
	}
	answer, err := Run(context.Background(), s.sys, Ask{Host: s.host})
	rows := answer.Rows
	if err != nil || len(rows) != 1 || rows[0].State != report.Error || report.Verdict(rows, false) != report.ExitUnfinished {
		t.Errorf("Run: %v, %v; want one ERROR", rows, err)
	}
}

func TestS12SlotsOff(t *testing.T) {
	s := newScratch(t)
	l := s.host.Layout()
	env := "AGENTWORKS_SLOTS=maybe\nAGENTWORKS_SLOTS_FILE=" + s.table() + "\n"
	s.write(l.EnvFile(), 0o600, env)
	run := func() []report.Row {
		t.Helper()
		answer, err := Run(context.Background(), s.sys, Ask{Host: s.host})
		s.must(err)
		return answer.Rows
	}
	rows := run()
	expectLine(t, rows, "WARN slots: slots not enabled, and there is a slot table", "")
	if report.Verdict(rows, false) != 0 || report.Verdict(rows, true) != 1 {
		t.Errorf("%s", lines(rows))
	}
	s.must(os.Remove(s.table()))
	rows = run()
	expectLine(t, rows, "INFO slots: slots not enabled", "slots not enabled")
	if report.Verdict(rows, true) != 0 || slices.ContainsFunc(rows, func(r report.Row) bool { return r.State != report.Info }) {
		t.Errorf("%s", lines(rows))
	}
	s.write(l.UsersFile(), 0o600, `{"users":[{"id":"u1"},{"id":"u2"}]}`)
	rows = run()
	expectLine(t, rows, "FAIL accounts-without-slot: 2 enabled accounts", "")
	if report.Verdict(rows, false) != 1 {
		t.Errorf("%s", lines(rows))
	}
}
