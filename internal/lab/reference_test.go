package lab

import (
	"io/fs"
	"path"
	"strings"
	"testing"
)

func TestReferenceLayoutIsComplete(t *testing.T) {
	text, err := reference.ReadFile("reference/layout.txt")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{"layout.txt": true}
	entries, err := parseLayout(string(text), func(name string) ([]byte, error) {
		used[name] = true
		return reference.ReadFile(path.Join("reference", name))
	})
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]bool{}
	for _, e := range entries {
		if parent := path.Dir(e.path); e.path != "." && !folders[parent] {
			t.Errorf("%s comes before its folder", e.path)
		}
		folders[e.path] = e.mode.IsDir()
		if e.mode&fs.ModeSymlink != 0 && e.target == "" {
			t.Errorf("%s points nowhere", e.path)
		}
	}
	files, err := reference.ReadDir("reference")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !used[file.Name()] {
			t.Errorf("%s is in no line of the layout", file.Name())
		}
	}
}

func TestParseLayout(t *testing.T) {
	open := func(string) ([]byte, error) { return []byte("content"), nil }
	good, err := parseLayout("# comment\n\n0711 dir\n0640 file = name\n0600 line : two words\nlink a -> ../b\n", open)
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{path: "dir", mode: fs.ModeDir | 0o711},
		{path: "file", mode: 0o640, content: []byte("content")},
		{path: "line", mode: 0o600, content: []byte("two words\n")},
		{path: "a", mode: fs.ModeSymlink, target: "../b"},
	}
	for i, e := range good {
		w := want[i]
		if e.path != w.path || e.mode != w.mode || string(e.content) != string(w.content) || e.target != w.target {
			t.Errorf("entry %d is %+v, want %+v", i, e, w)
		}
	}
	for _, bad := range []string{"0999 dir", "dir", "0644 file ? x"} {
		if _, err := parseLayout(bad, open); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestParseAccount(t *testing.T) {
	const passwd = "root:x:0:0:root:/root:/bin/bash\nvs:x:998:997:a:/srv/vs/home:/bin/sh\nodd:x:y:1::/:/bin/sh\n"
	const group = "vs:x:997:\nslot01:x:70001:other,vs\nslot02:x:70002:vsx\n"
	a, err := parseAccount(passwd, group, "vs")
	if err != nil {
		t.Fatal(err)
	}
	if a.uid != 998 || a.gid != 997 || len(a.groups) != 2 || a.groups[1] != 70001 || a.home != "/srv/vs/home" {
		t.Errorf("got %+v", a)
	}
	if env := strings.Join(a.environment(), " "); !strings.Contains(env, "USER=vs ") || !strings.Contains(env, "HOME=/srv/vs/home ") {
		t.Errorf("environment %s", env)
	}
	for _, name := range []string{"nobody", "odd", ""} {
		if _, err := parseAccount(passwd, group, name); err == nil {
			t.Errorf("account %q is found", name)
		}
	}
}
