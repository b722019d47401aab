package provision

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/lab/labtest"
	"agentworks-deploy/internal/report"
)

// TestMain lets this binary be the scratch host's systemd-sysusers.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "sysusers" {
		sysusers(os.Args[2])
		return
	}
	os.Exit(labtest.Main(m))
}

// sysusers appends what it reads to the account files below root, as the real
// program does in the good case. The lab tests use the real one.
func sysusers(root string) {
	add := func(file, line string) {
		f, err := os.OpenFile(filepath.Join(root, file), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(f, line)
		f.Close()
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		switch f[0] {
		case "g":
			add("etc/group", fmt.Sprintf("%s:x:%s:", f[1], f[2]))
			add("etc/gshadow", f[1]+":!*::")
		case "u":
			n := len(f)
			add("etc/passwd", fmt.Sprintf("%s:x:%s:AgentWorks slot:%s:%s", f[1], f[2], f[n-2], f[n-1]))
			add("etc/shadow", f[1]+":!*:20000::::::")
		case "m":
			path := filepath.Join(root, "etc/group")
			data, _ := os.ReadFile(path)
			groups := strings.Split(string(data), "\n")
			for i, g := range groups {
				if strings.HasPrefix(g, f[2]+":") {
					groups[i] = strings.Replace(g+","+f[1], ":,", ":", 1)
				}
			}
			os.WriteFile(path, []byte(strings.Join(groups, "\n")), 0o644)
		}
	}
}

// scratch is a host in a folder: numeric ids, account files of its own, and
// programs that stand in for the host's.
type scratch struct {
	t    *testing.T
	root string
	host hosts.Host
}

const serviceID = 4990

func newScratch(t *testing.T) *scratch {
	t.Helper()
	s := &scratch{t: t, root: t.TempDir(), host: hosts.Host{
		Product: "svc",
		Slots:   hosts.Slots{Mode: "on", Prefix: "slot", Count: 3},
		Release: hosts.Release{Manager: "user", Services: []string{"svc-workspace", "svc-agent"}},
	}}
	os.Chmod(s.root, 0o755)
	s.dir("/proc/sys/kernel", 0o755)
	for _, d := range []string{"/etc/sudoers.d", "/etc/apparmor.d", "/run", "/usr/local/libexec", "/usr/bin", "/usr/sbin", "/var/lib/systemd/linger", "/srv"} {
		s.dir(d, 0o755)
	}
	s.file("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nsvc:x:4990:4990::/srv/svc/home:/bin/sh\n")
	s.file("/etc/group", "root:x:0:\nsvc:x:4990:\n")
	s.file("/etc/shadow", "root:*:1::::::\nsvc:!:1::::::\n")
	s.file("/etc/gshadow", "root:*::\nsvc:!::\n")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.program("systemd-sysusers", fmt.Sprintf("GORACE=atexit_sleep_ms=0 exec %s sysusers %s", self, s.root))
	s.program("visudo", "exit 0")
	s.program("loginctl", fmt.Sprintf("touch %s/var/lib/systemd/linger/$2", s.root))
	s.program("systemctl", fmt.Sprintf(`id=${2#user@}; mkdir -p %s/run/user/${id%%.service}/systemd/private`, s.root))
	s.owned("/srv/svc", 0o755)
	s.owned("/srv/svc/data", 0o755)
	s.owned("/srv/svc/data/docs", 0o755)
	for _, unit := range s.host.Release.Services {
		s.file("/srv/svc/home/.config/systemd/user/"+unit+".service", "")
	}
	return s
}

func (s *scratch) at(p string) string { return s.root + p }

func (s *scratch) dir(p string, mode os.FileMode) {
	s.t.Helper()
	if err := os.MkdirAll(s.at(p), 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.chmod(p, mode)
}

func (s *scratch) chmod(p string, mode os.FileMode) {
	s.t.Helper()
	if err := syscall.Chmod(s.at(p), uint32(mode)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scratch) chown(p string, uid, gid int) {
	s.t.Helper()
	if err := os.Lchown(s.at(p), uid, gid); err != nil {
		s.t.Fatal(err)
	}
}

// owned is a folder of the service.
func (s *scratch) owned(p string, mode os.FileMode) {
	s.dir(p, mode)
	s.chown(p, serviceID, serviceID)
}

func (s *scratch) file(p, content string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.at(p)), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.at(p), []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scratch) append(p, content string) { s.file(p, s.read(p)+content) }

func (s *scratch) read(p string) string {
	s.t.Helper()
	data, err := os.ReadFile(s.at(p))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(data)
}

func (s *scratch) program(name, script string) {
	s.file("/usr/sbin/"+name, "#!/bin/sh\n"+script+"\n")
	s.chmod("/usr/sbin/"+name, 0o755)
}

// getent answers from the scratch root's files.
func (s *scratch) getent(_ context.Context, database string, keys ...string) ([]byte, error) {
	data, err := os.ReadFile(s.at("/etc/" + database))
	if err != nil || len(keys) == 0 {
		return data, err
	}
	var out []byte
	for line := range strings.Lines(string(data)) {
		f := strings.Split(line, ":")
		if slices.Contains(keys, f[0]) || slices.Contains(keys, f[2]) {
			out = append(out, line...)
		}
	}
	return out, nil
}

func program(content string) Program {
	sum := sha256.Sum256([]byte(content))
	return Program{SHA256: hex.EncodeToString(sum[:]), Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
}

func (s *scratch) request(plan bool) Request {
	return Request{Host: s.host, Plan: plan, Slotctl: program("slotctl"), Half: program("half"), Log: io.Discard}
}

func (s *scratch) system() System {
	return System{Root: s.root, Proc: s.at("/proc"), Getent: s.getent, Now: func() time.Time { return time.Unix(20000*86400, 0) }}
}

func (s *scratch) run(plan bool) ([]report.Row, error) {
	return Run(s.t.Context(), s.system(), s.request(plan))
}

// provision is a run that must work.
func (s *scratch) provision() []report.Row {
	s.t.Helper()
	rows, err := s.run(false)
	if err != nil {
		s.t.Fatalf("provision: %v", err)
	}
	return rows
}

// refused is a run that must fail with code, name each of words, and change
// nothing, neither as a plan nor in earnest.
func (s *scratch) refused(code int, words ...string) {
	s.t.Helper()
	before := s.snapshot()
	for _, plan := range []bool{true, false} {
		_, err := s.run(plan)
		if err == nil || report.CodeOf(err) != code {
			s.t.Fatalf("plan %v: %v, want exit %d", plan, err, code)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				s.t.Errorf("plan %v: %q does not name %q", plan, err, w)
			}
		}
	}
	s.equal(before)
}

// snapshot is everything of the scratch root that a run could change, with the
// ctime: what was not touched is equal.
func (s *scratch) snapshot() map[string]string {
	s.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(s.root, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if locks := s.at("/run"); p == locks || filepath.Dir(p) == locks && d.Name() == "agentworks-deploy" {
			if p == locks {
				return nil
			}
			return fs.SkipDir // every run takes them
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(p, &st); err != nil {
			return err
		}
		content := ""
		if st.Mode&syscall.S_IFMT == syscall.S_IFREG {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			content = string(data)
		}
		all[strings.TrimPrefix(p, s.root)] = fmt.Sprintf("%o %d:%d %d.%d %s", st.Mode, st.Uid, st.Gid, st.Ctim.Sec, st.Ctim.Nsec, content)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

func (s *scratch) equal(before map[string]string) {
	s.t.Helper()
	after := s.snapshot()
	for p, v := range before {
		if after[p] != v {
			s.t.Errorf("%s was %q, is %q", p, v, after[p])
		}
	}
	for p := range after {
		if _, ok := before[p]; !ok {
			s.t.Errorf("%s is new", p)
		}
	}
}

// is checks a file's owner, group and mode.
func (s *scratch) is(p string, uid, gid int, mode uint32) {
	s.t.Helper()
	var st syscall.Stat_t
	if err := syscall.Lstat(s.at(p), &st); err != nil {
		s.t.Error(err)
		return
	}
	if int(st.Uid) != uid || int(st.Gid) != gid || st.Mode&0o7777 != mode {
		s.t.Errorf("%s is %d:%d %04o, want %d:%d %04o", p, st.Uid, st.Gid, st.Mode&0o7777, uid, gid, mode)
	}
}
