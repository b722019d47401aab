package landlock

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestS40EveryABIHandlesAllItCanAndSaysWhatIsMissing(t *testing.T) {
	cases := []struct {
		abi     ABI
		fs      uint64
		scopes  uint64
		gaps    int
		refused string
	}{
		{0, 0, 0, 5, "ABI is 0"},
		{1, 0x1fff, 0, 5, "truncated"},
		{2, 0x3fff, 0, 4, "truncated"},
		{3, 0x7fff, 0, 3, ""},
		{4, 0x7fff, 0, 3, ""},
		{5, 0xffff, 0, 2, ""},
		{6, 0xffff, 3, 1, ""},
		{7, 0xffff, 3, 1, ""},
		{8, 0xffff, 3, 1, ""},
		{9, 0x1ffff, 3, 0, ""},
		{12, 0x1ffff, 3, 0, ""},
	}
	for _, c := range cases {
		if got := c.abi.FS(); got != c.fs {
			t.Errorf("ABI %d handles %#x, want %#x", c.abi, got, c.fs)
		}
		if got := c.abi.Scopes(); got != c.scopes {
			t.Errorf("ABI %d scopes %#x, want %#x", c.abi, got, c.scopes)
		}
		if got := c.abi.Gaps(); len(got) != c.gaps {
			t.Errorf("ABI %d lacks %q, want %d of them", c.abi, got, c.gaps)
		}
		err := c.abi.Check()
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("ABI %d: %v, want %q", c.abi, err, c.refused)
		}
	}
}

func TestS37RightsAreCutToTheFileType(t *testing.T) {
	const (
		onFile   = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE
		truncate = unix.LANDLOCK_ACCESS_FS_TRUNCATE
		ioctl    = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
		connect  = unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	)
	cases := []struct {
		name   string
		abi    ABI
		rights uint64
		mode   uint32
		want   uint64
	}{
		{"write on a folder, ABI 1", 1, Write, unix.S_IFDIR | 0o755, 0x1fff},
		{"write on a folder, ABI 9", 9, Write, unix.S_IFDIR, 0x1ffff},
		{"write on a file, ABI 1", 1, Write, unix.S_IFREG | 0o644, onFile},
		{"write on a file, ABI 3", 3, Write, unix.S_IFREG, onFile | truncate},
		{"write on a device, ABI 5", 5, Write, unix.S_IFCHR, onFile | truncate | ioctl},
		{"write on a socket, ABI 9", 9, Write, unix.S_IFSOCK, onFile | truncate | ioctl | connect},
		{"write on a fifo, ABI 3", 3, Write, unix.S_IFIFO, onFile | truncate},
		{"read on a folder", 7, Read, unix.S_IFDIR, Read},
		{"read on a file", 7, Read, unix.S_IFREG, Read &^ List},
		{"list on a folder", 7, List, unix.S_IFDIR, List},
		{"list on a file", 7, List, unix.S_IFREG, 0},
		{"facts cannot be executed", 7, Facts, unix.S_IFREG, unix.LANDLOCK_ACCESS_FS_READ_FILE},
	}
	for _, c := range cases {
		if got := c.abi.RightsFor(c.rights, c.mode); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
}

func TestProbeAndErrataOfThisKernel(t *testing.T) {
	abi, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	if err := abi.Check(); err != nil {
		t.Error(err)
	}
	if _, err := Errata(); err != nil {
		t.Error(err)
	}
}

func TestS37TheKernelTakesARuleOnEveryFileType(t *testing.T) {
	dir := t.TempDir()
	regular, fifo, socket := filepath.Join(dir, "f"), filepath.Join(dir, "p"), filepath.Join(dir, "s")
	if err := os.WriteFile(regular, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]uint32{fifo: unix.S_IFIFO, socket: unix.S_IFSOCK} {
		if err := unix.Mknod(path, mode|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	abi, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	for known := ABI(1); known <= abi; known++ {
		rules, err := Create(known)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{dir, regular, fifo, socket, "/dev/null"} {
			fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil {
				t.Fatal(err)
			}
			for _, rights := range []uint64{Write, Read, List, Facts, Device, Terminal} {
				if err := rules.Allow(fd, st.Mode, rights); err != nil {
					t.Errorf("ABI %d, %s, %#x: %v", known, path, rights, err)
				}
			}
			unix.Close(fd)
		}
		unix.Close(rules.fd)
	}
}

// restrictedChild is set in the environment of the subprocess that a test of
// the irreversible part runs in.
const restrictedChild = "LANDLOCK_TEST_CHILD"

func TestRestrictHoldsBackEverythingWithoutARule(t *testing.T) {
	if dir := os.Getenv(restrictedChild); dir != "" {
		restrictAndLook(dir)
	}
	dir := t.TempDir()
	for _, name := range []string{"open", "closed"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRestrictHoldsBackEverythingWithoutARule$")
	cmd.Env = append(os.Environ(), restrictedChild+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// restrictAndLook runs in the subprocess and never returns.
func restrictAndLook(dir string) {
	runtime.LockOSThread()
	fail := func(what string, err error) {
		os.Stderr.WriteString(what + ": " + err.Error() + "\n")
		os.Exit(1)
	}
	abi, err := Probe()
	if err != nil {
		fail("probe", err)
	}
	rules, err := Create(abi)
	if err != nil {
		fail("create", err)
	}
	if err := rules.Restrict(); err == nil {
		fail("restrict", os.ErrExist)
	}
	fd, err := unix.Open(filepath.Join(dir, "open"), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		fail("open", err)
	}
	if err := rules.Allow(fd, unix.S_IFREG, Read); err != nil {
		fail("allow", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fail("no_new_privs", err)
	}
	if err := rules.Restrict(); err != nil {
		fail("restrict", err)
	}
	if _, err := os.ReadFile(filepath.Join(dir, "open")); err != nil {
		fail("read what is granted", err)
	}
	if _, err := os.ReadFile(filepath.Join(dir, "closed")); err == nil {
		fail("read what is not granted", os.ErrExist)
	}
	os.Exit(0)
}
