package safefs

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestB21WithGroupWidensTheMask(t *testing.T) {
	a := ACLFromMode(0o2750).WithGroup(slot, 7)
	wantACL := ACL{
		{Tag: ACLOwner, Perm: 7}, {Tag: ACLGroup, Perm: 5}, {Tag: ACLNamed, Perm: 7, ID: slot}, {Tag: ACLMask, Perm: 7}, {Tag: ACLOther},
	}
	if !slices.Equal(a, wantACL) {
		t.Errorf("%v", a)
	}
	if again := a.WithGroup(slot, 7); !slices.Equal(a, again) {
		t.Errorf("twice: %v", again)
	}
	if less := a.WithGroup(slot, 4); less[2].Perm != 4 || less[3].Perm != 5 {
		t.Errorf("less: %v", less)
	}
}

func TestEnsureACLAgainstTheKernel(t *testing.T) {
	base := scratch(t)
	folder(t, base+"/shared", service, slot, 0o2770)
	d := open(t, base)
	n, err := d.Open("shared")
	must(t, err)
	defer n.Close()
	for _, kind := range []ACLKind{AccessACL, DefaultACL} {
		if a, err := n.ACL(kind); a != nil || err != nil {
			t.Fatalf("%v, %v", a, err)
		}
		list := ACLFromMode(0o770).WithGroup(other, 7).WithGroup(slot, 5)
		for i, wantChange := range []bool{true, false} {
			changed, err := n.EnsureACL(kind, list)
			if err != nil || changed != wantChange {
				t.Fatalf("%s, time %d: %v, %v", kind, i, changed, err)
			}
		}
		got, err := n.ACL(kind)
		must(t, err)
		if !slices.Equal(got, list) {
			t.Errorf("%s: %v", kind, got)
		}
	}
	// What others wrote is read, and read alike.
	if getfacl, err := exec.LookPath("getfacl"); err == nil {
		out, err := exec.Command(getfacl, "-cnp", base+"/shared").Output()
		must(t, err)
		if text := string(out); !strings.Contains(text, "group:71002:rwx") || !strings.Contains(text, "default:group:71001:r-x") {
			t.Errorf("getfacl says:\n%s", text)
		}
	}
	for _, kind := range []ACLKind{AccessACL, DefaultACL} {
		changed, err := n.EnsureACL(kind, nil)
		if err != nil || !changed {
			t.Fatalf("%s: %v, %v", kind, changed, err)
		}
		if changed, err = n.EnsureACL(kind, nil); err != nil || changed {
			t.Fatalf("%s again: %v, %v", kind, changed, err)
		}
	}
	want(t, base+"/shared", service, slot, 0o2770)
	if _, err := n.EnsureACL(AccessACL, ACL{{Tag: ACLOwner}}); err == nil {
		t.Error("half a list was accepted")
	}
}

// The decoder and the kernel must agree on what a list is.
func FuzzParseACL(f *testing.F) {
	f.Add([]byte{})
	f.Add(ACLFromMode(0o640).Encode())
	f.Add(ACLFromMode(0o770).WithGroup(5, 7).Encode())
	f.Add(ACL{{Tag: ACLOwner, Perm: 7}, {Tag: ACLUser, Perm: 1, ID: 9}, {Tag: ACLGroup}, {Tag: ACLMask, Perm: 1}, {Tag: ACLOther}}.Encode())
	f.Fuzz(func(t *testing.T, value []byte) {
		a, err := ParseACL(value)
		if err != nil || a == nil {
			return
		}
		again, err := ParseACL(a.Encode())
		if err != nil || !slices.Equal(a, again) {
			t.Fatalf("%v became %v, %v", a, again, err)
		}
		fd, err := unix.MemfdCreate("acl", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		n := &Node{fd: fd, path: "memfd"}
		if err := n.setXattr(string(AccessACL), a.Encode()); err != nil {
			t.Fatalf("the kernel refuses %v: %v", a, err)
		}
		got, err := n.ACL(AccessACL)
		if err != nil {
			t.Fatal(err)
		}
		if len(a) > 3 && !bytes.Equal(got.Encode(), a.Encode()) {
			t.Fatalf("the kernel made %v of %v", got, a)
		}
	})
}
