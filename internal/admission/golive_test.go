package admission

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/admission/vaulttest"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/units"
)

const goLiveHosts = "../../testdata/golive"

// TestMain also is the probe of a machine without user namespaces (see
// withoutNamespaces) and the Vault of the benchmark.
func TestMain(m *testing.M) {
	if os.Getenv("ADMISSION_TEST_VAULT") != "" {
		var names []string
		for i := range benchSecrets {
			names = append(names, benchName(i))
		}
		fmt.Println(vaulttest.Program("127.0.0.1:0", names, func(string) bool { return true }, canary, os.Stdout))
		os.Exit(1)
	}
	if os.Getenv("ADMISSION_TEST_PROBE") != "" {
		if err := Namespaces(hosts.Layout{})(context.Background()); err != nil {
			fmt.Println(err)
			os.Exit(7)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// withoutNamespaces runs the real probe in a user namespace that allows no
// further ones.
func withoutNamespaces(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/unshare", "-Ur", "/bin/sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces && exec "$0"`, self)
	cmd.Env = append(os.Environ(), "ADMISSION_TEST_PROBE=1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 7 {
		return fmt.Errorf("%s", bytes.TrimSpace(out))
	}
	if err != nil {
		return fmt.Errorf("the probe did not run: %w: %s", err, out)
	}
	return nil
}

// siteOf lays a folder of testdata/golive out below a folder of its own.
func siteOf(t *testing.T, dir string) *Site {
	t.Helper()
	l, err := hosts.Load(dir, "host", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.CopyFS(root, os.DirFS(dir)))
	app := filepath.Join(root, "app")
	must(os.MkdirAll(app, 0o755))
	must(filepath.WalkDir(app, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		must(err)
		must(os.WriteFile(file, bytes.ReplaceAll(data, []byte("@APP@"), []byte(app)), 0o600))
		return os.Chmod(file, 0o600)
	}))
	modes, _ := os.ReadFile(filepath.Join(dir, "modes")) // most have none
	for line := range strings.Lines(string(modes)) {
		mode, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(mode, 8, 32)
		must(err)
		must(os.Chmod(filepath.Join(root, file), os.FileMode(n)))
	}
	h := l.Host
	h.Paths = hosts.Paths{App: app, Docs: filepath.Join(app, "data/docs"), Home: app}
	s := &Site{Host: &h, Proc: "/proc", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Fence: Namespaces(h.Layout())}
	pid := 0
	if listens, err := os.ReadFile(filepath.Join(dir, "listens")); err == nil {
		// The test is the service, and really listens.
		network := "tcp4" // Go would listen on both otherwise
		if bytes.HasPrefix(listens, []byte("[")) {
			network = "tcp6"
		}
		socket, err := net.Listen(network, strings.TrimSpace(string(listens)))
		must(err)
		t.Cleanup(func() { socket.Close() })
		pid = os.Getpid()
	}
	s.Unit = func(_ context.Context, unit string) (units.Running, error) {
		if unit == "vs-workspace.service" {
			return units.Running{PID: pid, State: "active"}, nil
		}
		return units.Running{State: "inactive"}, nil
	}
	if _, err := os.Stat(filepath.Join(dir, "no-user-namespaces")); err == nil {
		s.Fence = withoutNamespaces
	}
	return s
}

func TestHostsThatMayNotGoLive(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(goLiveHosts, "*", "host.yaml"))
	if err != nil || len(dirs) < 20 {
		t.Fatalf("%d hosts in testdata, %v", len(dirs), err)
	}
	for _, file := range dirs {
		dir := filepath.Dir(file)
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			s := siteOf(t, dir)
			rows := s.Check(t.Context())
			if release := filepath.Join(dir, "release"); exists(release) {
				more, err := Retired(t.Context(), s.Host, release)
				if err != nil {
					t.Fatal(err)
				}
				rows = append(rows, more...)
			}
			got := lines(rows, report.Fail)
			data, _ := os.ReadFile(filepath.Join(dir, "want"))
			want := strings.Split(strings.TrimSpace(string(data)), "\n")
			if len(data) == 0 {
				want = nil
			}
			if strings.HasSuffix(name, "-stops") != (want != nil) {
				t.Fatalf("the folder's name does not say what it wants: %q", want)
			}
			if len(got) != len(want) || report.Verdict(rows, false) != min(len(want), 1) {
				t.Errorf("%d reasons, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
			}
			for _, w := range want {
				if !slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, w) }) {
					t.Errorf("no reason %q in\n%s", w, strings.Join(got, "\n"))
				}
			}
			all := fmt.Sprint(rows)
			for _, secret := range []string{"canary", "u-aaa", "u-bbb", "example.com"} {
				if strings.Contains(all, secret) {
					t.Errorf("the rows hold %q: %s", secret, all)
				}
			}
			for _, r := range rows {
				if r.State == report.Fail && r.Fix == nil {
					t.Errorf("%s has no way out", r.Detail)
				}
			}
		})
	}
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

// A host about to be provisioned is not judged for what provisioning makes; one
// whose table can be read already is.
func TestGoLiveBeforeProvisioning(t *testing.T) {
	s := siteOf(t, filepath.Join(goLiveHosts, "on-without-slot-stops"))
	s.Provisioning = true
	s.Fence = func(context.Context) error { t.Error("the probe ran"); return nil }
	if rows := s.Check(t.Context()); len(lines(rows, report.Fail)) != 1 {
		t.Errorf("rows: %v", rows)
	}
	if err := os.Remove(filepath.Join(s.Host.Paths.App, "slots.json")); err != nil {
		t.Fatal(err)
	}
	if rows := s.Check(t.Context()); len(rows) != 0 {
		t.Errorf("without a table yet: %v", rows)
	}
	s.Provisioning = false
	s.Fence = func(context.Context) error { return nil }
	if rows := s.Check(t.Context()); len(lines(rows, report.Fail)) != 1 {
		t.Errorf("after provisioning, without a table: %v", rows)
	}
}

// The environment of a running service counts where .env does not speak of slots
// (case V-03).
func TestV03SlotsOfTheRunningService(t *testing.T) {
	s := siteOf(t, filepath.Join(goLiveHosts, "accounts-off-stops"))
	s.Proc = t.TempDir()
	s.Host.Release.Services = nil
	if err := os.Mkdir(filepath.Join(s.Proc, "42"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.Unit = func(context.Context, string) (units.Running, error) { return units.Running{PID: 42}, nil }
	if got := lines(s.Check(t.Context()), report.Fail); !strings.Contains(strings.Join(got, "\n"), "is not known") {
		t.Errorf("an environment that cannot be read: %q", got)
	}
	if err := os.WriteFile(filepath.Join(s.Proc, "42/environ"), []byte("AGENTWORKS_SLOTS=optin\x00AGENTWORKS_SLOTS_FILE="+filepath.Join(s.Proc, "none")+"\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if rows := s.Check(t.Context()); len(lines(rows, report.Fail)) != 0 {
		t.Errorf("rows: %v", rows)
	}
}

func TestEnvFileOpenToOthers(t *testing.T) {
	name := filepath.Join(t.TempDir(), ".env")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	own := uint32(os.Getgid())
	entry := func(tag safefs.ACLTag, id uint32, perm uint16) safefs.ACLEntry {
		return safefs.ACLEntry{Tag: tag, ID: id, Perm: perm}
	}
	with := func(mask uint16, named safefs.ACLEntry) safefs.ACL {
		return safefs.ACL{entry(safefs.ACLOwner, 0, 6), named, entry(safefs.ACLGroup, 0, 0), entry(safefs.ACLMask, 0, mask), entry(safefs.ACLOther, 0, 0)}
	}
	for _, c := range []struct {
		mode os.FileMode
		acl  safefs.ACL
		own  uint32
		want string
	}{
		{0o600, nil, own, ""},
		{0o640, nil, own, ""},
		{0o602, nil, own, "others"},
		{0o601, nil, own, ""},
		{0o640, nil, own + 1, fmt.Sprintf("group %d", own)},
		{0o600, with(7, entry(safefs.ACLUser, 70001, 4)), own, "user 70001 by its ACL"},
		{0o600, with(0, entry(safefs.ACLUser, 70001, 4)), own, ""},
	} {
		if err := os.Chmod(name, c.mode); err != nil {
			t.Fatal(err)
		}
		if c.acl != nil {
			if err := unix.Setxattr(name, string(safefs.AccessACL), c.acl.Encode(), 0); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := openToOthers(name, c.own); err != nil || got != c.want {
			t.Errorf("%o %v: %q, %v; want %q", c.mode, c.acl, got, err, c.want)
		}
	}
}

func TestSocketAddresses(t *testing.T) {
	for in, want := range map[string]string{
		"0100007F:1F40":                         "127.0.0.1:8000",
		"00000000:0050":                         "0.0.0.0:80",
		"00000000000000000000000001000000:1F40": "[::1]:8000",
		"0000000000000000FFFF00000100007F:1F40": "[::ffff:127.0.0.1]:8000",
	} {
		got, err := parseSocketAddress(in)
		if err != nil || got.String() != want {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
}

func FuzzListeners(f *testing.F) {
	f.Add([]byte("head\n  0: 0100007F:1F40 00000000:0000 0A 0:0 0:0 0 0 0 123\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_ = parseListeners(data, map[string]netip.AddrPort{})
	})
}
