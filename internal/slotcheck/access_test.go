package slotcheck

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/safefs"
)

// TestS14B21AccessAgreesWithTheKernel asks the kernel for each case, as the
// account itself, and compares: a table of expectations alone could repeat a
// misreading of acl(5). Then it runs the words that open the folder, in our own
// spelling of setfacl, and expects both to say yes.
func TestS14B21AccessAgreesWithTheKernel(t *testing.T) {
	const owner, slot, group, other = 61001, 61002, 61003, 61004
	full := func(user, groupObj, mask, rest uint16, named ...safefs.ACLEntry) safefs.ACL {
		acl := safefs.ACL{{Tag: safefs.ACLOwner, Perm: user}}
		for _, e := range named {
			if e.Tag == safefs.ACLUser {
				acl = append(acl, e)
			}
		}
		acl = append(acl, safefs.ACLEntry{Tag: safefs.ACLGroup, Perm: groupObj})
		for _, e := range named {
			if e.Tag == safefs.ACLNamed {
				acl = append(acl, e)
			}
		}
		return append(acl, safefs.ACLEntry{Tag: safefs.ACLMask, Perm: mask}, safefs.ACLEntry{Tag: safefs.ACLOther, Perm: rest})
	}
	tests := []struct {
		name       string
		owner, gid int
		mode       os.FileMode
		acl        safefs.ACL
		want       bool
		words      string // of the opener, without the path
	}{
		{"other x", owner, other, 0o711, nil, true, ""},
		{"closed", owner, other, 0o700, nil, false, "chmod o+x"},
		{"owner without x", slot, other, 0o077, nil, false, "chmod u+x"},
		{"group without x though others have it", owner, group, 0o701, nil, false, "chmod g+x"},
		{"group x", owner, group, 0o710, nil, true, ""},
		{"named user", owner, other, 0, full(7, 0, 1, 0, safefs.ACLEntry{Tag: safefs.ACLUser, Perm: 1, ID: slot}), true, ""},
		{"mask hides x", owner, other, 0, full(7, 0, 0, 0, safefs.ACLEntry{Tag: safefs.ACLUser, Perm: 1, ID: slot}), false, "setfacl -n -m m::--x"},
		{"named user shut out", owner, other, 0, full(7, 5, 5, 1, safefs.ACLEntry{Tag: safefs.ACLUser, Perm: 0, ID: slot}), false, "setfacl -n -m u:61002:--x,m::r-x"},
		{"named group shut out", owner, other, 0, full(7, 5, 5, 1, safefs.ACLEntry{Tag: safefs.ACLNamed, Perm: 4, ID: group}), false, "setfacl -n -m g:61003:r-x,m::r-x"},
		{"owning group shut out", owner, group, 0, full(7, 0, 4, 1, safefs.ACLEntry{Tag: safefs.ACLUser, Perm: 4, ID: other}), false, "setfacl -n -m g::--x,m::r-x"},
		{"one of two groups is enough", owner, group, 0, full(7, 0, 1, 0, safefs.ACLEntry{Tag: safefs.ACLNamed, Perm: 1, ID: slot}), true, ""},
		{"entry of somebody else", owner, other, 0, full(7, 0, 1, 0, safefs.ACLEntry{Tag: safefs.ACLUser, Perm: 1, ID: other}), false, "chmod o+x"},
		{"other x, mask empty", owner, other, 0, full(7, 0, 0, 1, safefs.ACLEntry{Tag: safefs.ACLUser, Perm: 7, ID: other}), true, ""},
	}
	top, err := os.MkdirTemp("/var/tmp", "slotcheck-access")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(top, strconv.Itoa(i))
			if err := os.MkdirAll(filepath.Join(dir, "in"), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(dir, tt.owner, tt.gid); err != nil {
				t.Fatal(err)
			}
			if tt.acl == nil {
				if err := os.Chmod(dir, tt.mode); err != nil {
					t.Fatal(err)
				}
			} else if err := unix.Setxattr(dir, string(safefs.AccessACL), tt.acl.Encode(), 0); err != nil {
				t.Fatal(err)
			}
			check := func(want bool) (access, decision) {
				t.Helper()
				cmd := exec.Command("/usr/bin/stat", filepath.Join(dir, "in"))
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: slot, Gid: slot, Groups: []uint32{group}}}
				kernel := cmd.Run() == nil
				a, err := readAccess(dir)
				if err != nil {
					t.Fatal(err)
				}
				d := a.decide(slot, []uint32{slot, group}, permX)
				if kernel != want || d.Granted != want {
					t.Errorf("kernel says %v, decide says %+v, want %v", kernel, d, want)
				}
				return a, d
			}
			a, d := check(tt.want)
			if tt.want {
				return
			}
			argv := a.opener(d, permX, dir)
			if got := strings.Join(argv[:len(argv)-1], " "); got != tt.words {
				t.Errorf("opener gives %q, want %q", got, tt.words)
			}
			if argv[0] == "chmod" {
				if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				check(true)
			}
		})
	}
}

func TestReadAccessOfALinkIsNotOfItsTarget(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	a, err := readAccess(filepath.Join(dir, "link"))
	if err != nil || a.Mode != 0o777 {
		t.Errorf("readAccess = %+v, %v; want the link's own 0777", a, err)
	}
}
