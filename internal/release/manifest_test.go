package release

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestManifestOfABuildIsOneAndParses(t *testing.T) {
	dir := tree(t, t.TempDir(), sampleTree())
	p := programs(t, "1")
	b := build(t, dir, p)
	again := build(t, dir, p)
	if b.m.ID != again.m.ID || string(b.manifest) != string(again.manifest) {
		t.Fatalf("one build has two manifests: %s and %s", b.m.ID, again.m.ID)
	}
	if !IsID(b.m.ID) || !strings.HasPrefix(b.m.ID, "vs-"+b.m.contentHash()[:8]+"-") {
		t.Fatalf("id %s", b.m.ID)
	}
	got, err := parseManifest(b.manifest)
	must(t, err)
	if got.ID != b.m.ID || got.Arch != "amd64" || got.Glibc != "" || len(got.Files) != len(b.m.Files) {
		t.Fatalf("parsed %+v", got)
	}
	for _, name := range runtimePrograms() {
		if got.Files["bin/"+name].Mode != modeProgram {
			t.Errorf("bin/%s is not listed as a program", name)
		}
	}
	if got.Links["logs"] != "../../logs" || got.Links["frontend/home.html"] != "index.html" {
		t.Errorf("links %v", got.Links)
	}
	if got.Files["lib/deep/er/data"].Mode != modeFile { // the builder's 0600 is no part of a release (case B08)
		t.Errorf("mode %v", got.Files["lib/deep/er/data"])
	}
}

func TestParseManifestRefuses(t *testing.T) {
	b := variant(t, "x")
	edit := func(f func(m *Manifest)) string {
		var m Manifest
		must(t, json.Unmarshal(b.manifest, &m))
		f(&m)
		m.ID = m.makeID()
		out, err := m.Encode()
		must(t, err)
		return string(out)
	}
	file := b.m.Files["empty"]
	whole := string(b.manifest)
	for name, c := range map[string]struct{ text, want string }{
		"not JSON":            {"[", "EOF"},
		"a list":              {"[]", "cannot unmarshal"},
		"trailing bytes":      {whole + "{}", "bytes after"},
		"unknown field":       {strings.Replace(whole, `"v": 1`, `"v": 1, "x": 2`, 1), "unknown field"},
		"key twice":           {strings.Replace(whole, `"v": 1`, `"v": 1, "v": 1`, 1), "twice"},
		"version":             {edit(func(m *Manifest) { m.V = 2 }), "version 2"},
		"other id":            {strings.Replace(whole, b.m.ID, "vs-00000000-20260101000000", 1), "its content and time give"},
		"no files":            {edit(func(m *Manifest) { m.Files = nil }), "no file"},
		"os":                  {edit(func(m *Manifest) { m.OS = "plan9" }), "not linux"},
		"product":             {edit(func(m *Manifest) { m.Product = "../x" }), "no product name"},
		"time":                {edit(func(m *Manifest) { m.BuiltAt = time.Time{} }), "build time"},
		"absolute":            {edit(func(m *Manifest) { m.Files["/etc/passwd"] = file }), "plain path"},
		"climbing":            {edit(func(m *Manifest) { m.Files["../x"] = file }), "plain path"},
		"climbing inside":     {edit(func(m *Manifest) { m.Files["a/../../x"] = file }), "plain path"},
		"two spellings":       {edit(func(m *Manifest) { m.Files["bin//x"] = file }), "plain path"},
		"control byte":        {edit(func(m *Manifest) { m.Files["a\x1bb"] = file }), "control bytes"},
		"own name":            {edit(func(m *Manifest) { m.Files["manifest.json"] = file }), "deploy's own"},
		"marker":              {edit(func(m *Manifest) { m.Files[".deploying"] = file }), "deploy's own"},
		"file below a file":   {edit(func(m *Manifest) { m.Files["empty/x"] = file }), "not a folder"},
		"file below a link":   {edit(func(m *Manifest) { m.Links["l"] = "lib"; m.Files["l/x"] = file }), "twice"},
		"file is also a link": {edit(func(m *Manifest) { m.Links["empty"] = "lib" }), "twice"},
		"logs as a file":      {edit(func(m *Manifest) { delete(m.Links, "logs"); m.Files["logs"] = file }), "log folder"},
		"logs elsewhere":      {edit(func(m *Manifest) { m.Links["logs"] = "/var/log" }), "log folder"},
		"link out":            {edit(func(m *Manifest) { m.Links["a/l"] = "../../x" }), "leaves the release"},
		"link absolute":       {edit(func(m *Manifest) { m.Links["l"] = "/etc" }), "absolute"},
		"link climbs late":    {edit(func(m *Manifest) { m.Links["l"] = "lib/../.." }), "climbs after a name"},
		"link empty":          {edit(func(m *Manifest) { m.Links["l"] = "" }), "empty"},
		"digest":              {edit(func(m *Manifest) { f := file; f.SHA256 = strings.Repeat("A", 64); m.Files["empty"] = f }), "no digest"},
		"size":                {edit(func(m *Manifest) { f := file; f.Size = -1; m.Files["empty"] = f }), "negative"},
		"setuid":              {edit(func(m *Manifest) { f := file; f.Mode = "4755"; m.Files["empty"] = f }), "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseManifest([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestLinksThatStayInsideAreTaken(t *testing.T) {
	for p, target := range map[string]string{"a/b/l": "../../x", "l": "x/y", "l2": "./x", "a/l": "..", "l3": "x/"} {
		if err := checkTarget(p, target); err != nil {
			t.Errorf("%s → %s: %v", p, target, err)
		}
	}
}

// A prebuilt copy is proven against its own manifest before anything else.
func TestR09PrebuiltFolderMustMatchItsManifest(t *testing.T) {
	b := variant(t, "built")
	pristine := func() string {
		files := map[string]content{}
		for p := range b.m.Files {
			data, err := os.ReadFile(b.tree.files[p].path)
			must(t, err)
			mode := os.FileMode(0o644)
			if b.m.Files[p].Mode == modeProgram {
				mode = 0o755
			}
			files[p] = content{data: string(data), mode: mode}
		}
		for p, l := range b.m.Links {
			files[p] = content{link: l}
		}
		files[manifestName] = content{data: string(b.manifest), mode: 0o644}
		return tree(t, t.TempDir(), files)
	}
	dir := pristine()
	rebuilt := build(t, dir, filepath.Dir(b.tree.files["bin/slotctl"].path))
	if rebuilt.m.ID != b.m.ID {
		t.Errorf("a prebuilt release changed its id: %s, was %s", rebuilt.m.ID, b.m.ID)
	}
	newer := build(t, dir, programs(t, "2"))
	if newer.m.ID == b.m.ID || !newer.m.BuiltAt.Equal(b.m.BuiltAt) || len(newer.tree.Replaced) != 3 {
		t.Errorf("replaced programs %v: id %s, was %s", newer.tree.Replaced, newer.m.ID, b.m.ID)
	}
	for name, c := range differences() {
		t.Run(name, func(t *testing.T) {
			dir := pristine()
			c.make(t, dir)
			if _, err := ReadTree(context.Background(), dir, "it"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
		})
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(`{"v":1,"id":"vs-00000000-20260101000000","product":"vs","os":"linux","arch":"amd64","glibc":"","built_at":"2026-01-01T00:00:00Z","revisions":{},"files":{"a":{"sha256":"","size":0,"mode":"0644"}},"links":{"b":"a"}}`))
	f.Add([]byte(`{"v":1,"files":{"a/b":{}},"links":{"a":"../x"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b)
		if err != nil {
			return
		}
		out, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseManifest(out)
		if err != nil || again.ID != m.ID {
			t.Fatalf("what was taken is not taken again: %v", err)
		}
		for p := range m.Files {
			if !filepath.IsLocal(p) {
				t.Fatalf("%q leaves the release", p)
			}
		}
	})
}

func FuzzParseHistory(f *testing.F) {
	f.Add([]byte(`{"v":1,"deploys":[{"seq":1,"id":"vs-00000000-20260101000000","manifest":"","at":"2026-01-01T00:00:00Z","outcome":"live"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHistory(b)
		if err != nil {
			return
		}
		last := 0
		for _, e := range h.Deploys {
			if e.Seq <= last {
				t.Fatal("not increasing")
			}
			last = e.Seq
		}
	})
}
