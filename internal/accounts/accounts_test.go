package accounts

import (
	"context"
	"os"
	"reflect"
	"testing"
)

// scripted answers like a host whose directory service lists nothing.
func scripted(t *testing.T, answers map[string]string) Getent {
	return func(_ context.Context, database string, keys ...string) ([]byte, error) {
		out := ""
		if len(keys) == 0 {
			return []byte(answers[database]), nil
		}
		for _, k := range keys {
			out += answers[database+" "+k]
		}
		return []byte(out), nil
	}
}

// TestB11AccountsKnownOnlyToADirectoryService: /etc/passwd does not hold
// slot01, getent knows it.
func TestB11AccountsKnownOnlyToADirectoryService(t *testing.T) {
	getent := scripted(t, map[string]string{
		"passwd":        "root:x:0:0:root:/root:/bin/bash\nvs:x:990:990::/srv/vs/home:/bin/sh\n",
		"group":         "root:x:0:\nvs:x:990:\nslot02:x:70002:vs\n",
		"passwd slot01": "slot01:*:70001:70001:AgentWorks slot:/srv/vs/slots/home/slot01:/usr/sbin/nologin\n",
		"group slot01":  "slot01:*:70001:vs,other\n",
		"passwd 70009":  "guest:*:70009:70001:::\n",
	})
	db, err := Load(t.Context(), getent, "slot01", "slot99")
	if err != nil {
		t.Fatal(err)
	}
	u, ok := db.User("slot01")
	want := User{Name: "slot01", UID: 70001, GID: 70001, Comment: "AgentWorks slot", Home: "/srv/vs/slots/home/slot01", Shell: "/usr/sbin/nologin"}
	if !ok || u != want {
		t.Errorf("slot01 = %+v, %v", u, ok)
	}
	if _, ok := db.User("slot99"); ok {
		t.Error("slot99 exists")
	}
	if got := db.GroupsOf("vs"); !reflect.DeepEqual(got, []uint32{990, 70002, 70001}) {
		t.Errorf("groups of vs = %v", got)
	}
	if err := db.AddIDs(t.Context(), getent, []uint32{70009}); err != nil {
		t.Fatal(err)
	}
	if u, _ := db.User("guest"); u.UID != 70009 {
		t.Errorf("guest = %+v", u)
	}
	if n := len(db.Users()); n != 4 {
		t.Errorf("%d users", n)
	}
}

func TestHostGetentReadsThisHost(t *testing.T) {
	db, err := Load(t.Context(), HostGetent, "root", "no-such-account-here")
	if err != nil {
		t.Fatal(err)
	}
	if u, ok := db.User("root"); !ok || u.UID != 0 {
		t.Errorf("root = %+v, %v", u, ok)
	}
}

func TestBrokenAnswersAreErrors(t *testing.T) {
	for _, line := range []string{"a:b\n", ":x:1:1:::\n", "a:x:-1:1:::\n", "a:x:1:4294967296:::\n"} {
		if _, err := parseUsers([]byte(line)); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
	for _, line := range []string{"a:b\n", ":x:1:\n", "a:x:y:\n"} {
		if _, err := parseGroups([]byte(line)); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("slot01:*:70001:70001:AgentWorks slot:/srv/vs/slots/home/slot01:/usr/sbin/nologin\n")
	f.Add("slot01:*:70001:vs,other\n")
	f.Add("Name:\ta b\nUid:\t1\t1\t1\t1\nGid:\t1\t1\t1\t1\nGroups:\t1 2 \n")
	f.Fuzz(func(t *testing.T, s string) {
		users, _ := parseUsers([]byte(s))
		for _, u := range users {
			if u.Name == "" {
				t.Error("an account without a name")
			}
		}
		_, _ = parseGroups([]byte(s))
		_, _ = parseStatus([]byte(s))
		_ = parseCgroup([]byte(s))
	})
}

func TestP11GroupsAreTheKernelsNotTheDatabases(t *testing.T) {
	p, err := parseStatus([]byte("Name:\tvs-agent\nUid:\t990\t990\t990\t990\nGid:\t990\t990\t990\t990\nFDSize:\t64\nGroups:\t70000 70001 \n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Lacks([]uint32{990, 70000, 70001, 70002}); !reflect.DeepEqual(got, []uint32{70002}) {
		t.Errorf("lacks %v", got)
	}
	if _, err := parseStatus([]byte("Name:\tx\nUid:\t1\n")); err == nil {
		t.Error("a status without groups was taken")
	}
}

func TestInUnit(t *testing.T) {
	for data, want := range map[string]bool{
		"0::/user.slice/user-990.slice/user@990.service/app.slice/vs-agent.service\n":   true,
		"0::/user.slice/user-990.slice/session-1.scope\n":                               false,
		"1:name=systemd:/user.slice/user-990.slice/user@990.service/init.scope\n0::/\n": true,
		"3:memory:/user@990.service\n1:name=systemd:/system.slice/ssh.service\n0::/\n":  false,
		"0::/user.slice/user-990.slice/user@990.service.d/x\n1:name=systemd:/other\n":   false,
	} {
		p := Process{Cgroup: parseCgroup([]byte(data))}
		if got := p.InUnit("user@990.service"); got != want {
			t.Errorf("%q: %v", data, got)
		}
	}
}

func TestProcessesFindsThisOne(t *testing.T) {
	all, err := Processes("/proc", uint32(os.Getuid()))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.PID == os.Getpid() {
			groups, _ := os.Getgroups()
			if len(p.Groups) != len(groups) {
				t.Errorf("groups %v, getgroups %v", p.Groups, groups)
			}
			if p.Parent != os.Getppid() {
				t.Errorf("parent %d, getppid %d", p.Parent, os.Getppid())
			}
			return
		}
	}
	t.Error("this process is not in the list")
}
