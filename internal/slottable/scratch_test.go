package slottable

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/lab/labtest"
	"agentworks-deploy/internal/report"
)

func TestMain(m *testing.M) {
	if root := os.Getenv(helperRoot); root != "" {
		os.Exit(helper(root))
	}
	os.Exit(labtest.Main(m))
}

// Numeric ids stand for accounts; the host's own are not touched.
const (
	serviceID = 71000
	strangeID = 71900
	sharedID  = 71901
	slotCount = 5
)

func slotID(n int) int { return serviceID + n }

// scratch is a provisioned host in a folder.
type scratch struct {
	*testing.T
	root string
	host *hosts.Host
}

func newScratch(t *testing.T) *scratch {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the slot table is tested as root")
	}
	s := &scratch{T: t, root: t.TempDir(), host: scratchHost(slotCount)}
	// The service account reads the table back, so it must get to it.
	s.mode(filepath.Dir(s.root), 0, 0, 0o711)
	s.mode(s.root, 0, 0, 0o755)
	s.dir("/proc", 0, 0, 0o755)
	s.dir("/etc/agentworks", 0, serviceID, 0o751)
	s.file("/etc/agentworks/slots.json", `{"slots":{}}`, 0, serviceID, 0o640)
	s.dir("/srv/vs/data/docs/_users", serviceID, serviceID, 0o711)
	for n := 1; n <= slotCount; n++ {
		name := s.host.Layout().Slot(n)
		s.dir("/srv/vs/slots/home/"+name, slotID(n), slotID(n), 0o700)
		s.dir("/srv/vs/slots/state/"+name, serviceID, slotID(n), 0o2770)
		s.dir("/srv/vs/slots/run/"+name, serviceID, slotID(n), 0o2770)
	}
	return s
}

func scratchHost(count int) *hosts.Host {
	return &hosts.Host{Name: "box", Product: "vs", Slots: hosts.Slots{Prefix: "slot", Count: count}}
}

func scratchSystem(root string, count int) System {
	return System{Root: root, Proc: root + "/proc", Now: time.Now, Getent: func(_ context.Context, database string, _ ...string) ([]byte, error) {
		var out strings.Builder
		add := func(name string, id int, member string) {
			if database == "passwd" {
				fmt.Fprintf(&out, "%s:x:%d:%d::/srv/vs/slots/home/%s:/usr/sbin/nologin\n", name, id, id, name)
			} else {
				fmt.Fprintf(&out, "%s:x:%d:%s\n", name, id, member)
			}
		}
		add("root", 0, "")
		add("vs", serviceID, "")
		add("slotshared", sharedID, "vs")
		for n := 1; n <= count; n++ {
			add(fmt.Sprintf("slot%02d", n), slotID(n), "vs")
		}
		return []byte(out.String()), nil
	}}
}

func (s *scratch) system() System { return scratchSystem(s.root, slotCount) }

func (s *scratch) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scratch) mode(path string, uid, gid int, mode uint32) {
	s.Helper()
	s.must(os.Chown(path, uid, gid))
	s.must(unix.Chmod(path, mode))
}

func (s *scratch) dir(path string, uid, gid int, mode uint32) {
	s.Helper()
	s.must(os.MkdirAll(filepath.Dir(s.root+path), 0o711))
	s.must(os.MkdirAll(s.root+path, 0o700))
	s.mode(s.root+path, uid, gid, mode)
}

func (s *scratch) file(path, text string, uid, gid int, mode uint32) {
	s.Helper()
	s.must(os.WriteFile(s.root+path, []byte(text), 0o600))
	s.mode(s.root+path, uid, gid, mode)
}

func (s *scratch) read(path string) string {
	s.Helper()
	data, err := os.ReadFile(s.root + path)
	s.must(err)
	return string(data)
}

// is checks owner, group and mode of what stands under a name, links included.
func (s *scratch) is(path string, uid, gid int, mode uint32) {
	s.Helper()
	var st unix.Stat_t
	s.must(unix.Lstat(s.root+path, &st))
	if int(st.Uid) != uid || int(st.Gid) != gid || st.Mode&0o7777 != mode {
		s.Errorf("%s is %d:%d %04o, want %d:%d %04o", path, st.Uid, st.Gid, st.Mode&0o7777, uid, gid, mode)
	}
}

func (s *scratch) request(user, slot string) Request {
	req := On(s.host)
	req.User, req.Slot = user, slot
	return req
}

func (s *scratch) assign(user, slot string, flags ...func(*Request)) (string, []report.Row, error) {
	req := s.request(user, slot)
	for _, f := range flags {
		f(&req)
	}
	return Assign(context.Background(), s.system(), req)
}

func (s *scratch) release(user string, flags ...func(*Request)) ([]report.Row, error) {
	req := s.request(user, "")
	for _, f := range flags {
		f(&req)
	}
	_, rows, err := Release(context.Background(), s.system(), req)
	return rows, err
}

func adopt(r *Request) { r.Adopt = true }
func plan(r *Request)  { r.Plan = true }

func (s *scratch) assigned(user, slot string, flags ...func(*Request)) string {
	s.Helper()
	got, _, err := s.assign(user, slot, flags...)
	s.must(err)
	return got
}

func (s *scratch) released(user string) {
	s.Helper()
	_, err := s.release(user)
	s.must(err)
}

// refused wants an error with this exit code that says so.
func refused(t *testing.T, err error, code int, words string) {
	t.Helper()
	if err == nil || report.CodeOf(err) != code || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v (exit %d), want exit %d and %q", err, report.CodeOf(err), code, words)
	}
}

// scan is all of the scratch host but the lock, whose time of change is that of
// the last holder.
func (s *scratch) scan() labtest.Snapshot {
	s.Helper()
	return labtest.Scan(s, s.root).Without(func(path string) bool { return strings.HasSuffix(path, ".lock") })
}

func has(rows []report.Row, state report.State, check, words string) bool {
	for _, r := range rows {
		if r.State == state && r.Check == check && strings.Contains(r.Detail, words) {
			return true
		}
	}
	return false
}

func wantRow(t *testing.T, rows []report.Row, state report.State, check, words string) {
	t.Helper()
	if !has(rows, state, check, words) {
		t.Errorf("no row %s %s with %q in %v", state, check, words, rows)
	}
}
