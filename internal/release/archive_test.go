package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type entry struct {
	name string
	kind byte
	link string
	data string
	mode int64
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, ModTime: time.Unix(1e9, 0)}
		if e.kind == tar.TypeReg {
			h.Size = int64(len(e.data))
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func goodArchive(t testing.TB) []byte {
	return archive(t,
		entry{name: "./", kind: tar.TypeDir, mode: 0o755},
		entry{name: "./bin/", kind: tar.TypeDir, mode: 0o700},
		entry{name: "./bin/vs-agent", kind: tar.TypeReg, data: "program", mode: 0o755},
		entry{name: "./bin/again", kind: tar.TypeLink, link: "./bin/vs-agent", mode: 0o755},
		entry{name: "frontend/index.html", kind: tar.TypeReg, data: "page", mode: 0o600},
		entry{name: "frontend/home.html", kind: tar.TypeSymlink, link: "index.html"},
		entry{name: "frontend/", kind: tar.TypeDir, mode: 0o755},
		entry{name: "logs/", kind: tar.TypeDir, mode: 0o755},
	)
}

func TestUnpackTakesWhatTarMakesOfAFolder(t *testing.T) {
	plain := goodArchive(t)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write(plain)
	must(t, err)
	must(t, z.Close())
	for name, b := range map[string][]byte{"plain": plain, "gzip": zipped.Bytes()} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, Unpack(context.Background(), bytes.NewReader(b), dir, DefaultLimits()))
			b := build(t, dir, programs(t, "1"))
			if f := b.m.Files["bin/again"]; f != b.m.Files["bin/vs-agent"] || f.Mode != modeProgram {
				t.Errorf("hard link became %v", f)
			}
			if b.m.Files["frontend/index.html"].Mode != modeFile || b.m.Links["frontend/home.html"] != "index.html" {
				t.Errorf("%v %v", b.m.Files, b.m.Links)
			}
		})
	}
}

func TestUnpackRefuses(t *testing.T) {
	file := entry{name: "a", kind: tar.TypeReg, data: "1"}
	for name, c := range map[string]struct {
		entries []entry
		want    string
	}{
		"parent":                {[]entry{{name: "../x", kind: tar.TypeReg}}, "plain path"},
		"parent within":         {[]entry{{name: "a/../../x", kind: tar.TypeReg}}, "plain path"},
		"absolute":              {[]entry{{name: "/etc/x", kind: tar.TypeReg}}, "plain path"},
		"absolute folder":       {[]entry{{name: "/etc/", kind: tar.TypeDir}}, "plain path"},
		"parent folder":         {[]entry{{name: "../", kind: tar.TypeDir}}, "plain path"},
		"link out":              {[]entry{{name: "l", kind: tar.TypeSymlink, link: "../../etc"}}, "leaves"},
		"link absolute":         {[]entry{{name: "l", kind: tar.TypeSymlink, link: "/etc"}}, "absolute"},
		"through a link":        {[]entry{{name: "d/", kind: tar.TypeDir}, {name: "l", kind: tar.TypeSymlink, link: "d"}, {name: "l/x", kind: tar.TypeReg}}, "not a folder"},
		"link over a folder":    {[]entry{{name: "d/x", kind: tar.TypeReg}, {name: "d", kind: tar.TypeSymlink, link: "e"}}, "twice"},
		"folder over a link":    {[]entry{{name: "d", kind: tar.TypeSymlink, link: "e"}, {name: "d/", kind: tar.TypeDir}}, "twice"},
		"file twice":            {[]entry{file, file}, "twice"},
		"file twice, spelled":   {[]entry{file, {name: "./a", kind: tar.TypeReg}}, "twice"},
		"file and link":         {[]entry{file, {name: "a", kind: tar.TypeSymlink, link: "b"}}, "twice"},
		"hard link out":         {[]entry{{name: "l", kind: tar.TypeLink, link: "/etc/passwd"}}, "no file before it"},
		"hard link to nothing":  {[]entry{{name: "l", kind: tar.TypeLink, link: "a"}, file}, "no file before it"},
		"hard link to a link":   {[]entry{{name: "s", kind: tar.TypeSymlink, link: "x"}, {name: "l", kind: tar.TypeLink, link: "s"}}, "no file before it"},
		"character device":      {[]entry{{name: "null", kind: tar.TypeChar}}, "type"},
		"block device":          {[]entry{{name: "sda", kind: tar.TypeBlock}}, "type"},
		"fifo":                  {[]entry{{name: "p", kind: tar.TypeFifo}}, "type"},
		"control byte":          {[]entry{{name: "a\nb", kind: tar.TypeReg}}, "control"},
		"the marker":            {[]entry{{name: ".deploying", kind: tar.TypeReg}}, "deploy's own"},
		"manifest as a link":    {[]entry{{name: "manifest.json", kind: tar.TypeSymlink, link: "a"}}, "plain file"},
		"manifest twice":        {[]entry{{name: "manifest.json", kind: tar.TypeReg, data: "{}"}, {name: "manifest.json", kind: tar.TypeReg, data: "{}"}}, "plain file"},
		"something in logs":     {[]entry{{name: "logs/x", kind: tar.TypeReg}}, "log folder"},
		"more than the entries": {[]entry{file, {name: "b", kind: tar.TypeReg}, {name: "c", kind: tar.TypeReg}, {name: "d", kind: tar.TypeReg}}, "too many"},
		"more than the bytes":   {[]entry{{name: "a", kind: tar.TypeReg, data: strings.Repeat("x", 200)}}, "larger"},
		"many links to bytes":   {[]entry{{name: "a", kind: tar.TypeReg, data: strings.Repeat("x", 90)}, {name: "b", kind: tar.TypeLink, link: "a"}}, "larger"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "in")
			must(t, os.Mkdir(dir, 0o755))
			err := Unpack(context.Background(), bytes.NewReader(archive(t, c.entries...)), dir, Limits{Bytes: 100, Entries: 3})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if outside, _ := os.ReadDir(parent); len(outside) != 1 {
				t.Fatalf("something was written beside the folder: %v", outside)
			}
		})
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write(goodArchive(t))
	must(t, err)
	must(t, z.Close())
	damaged := bytes.Clone(goodArchive(t))
	damaged[512+148] ^= 1 // the second header's checksum
	flipped := bytes.Clone(zipped.Bytes())
	flipped[12] ^= 0xff
	for name, c := range map[string]struct {
		bytes []byte
		want  string
	}{
		"zstd":        {[]byte{0x28, 0xb5, 0x2f, 0xfd}, "give a plain or gzip tar"},
		"a text":      {[]byte("no tar"), "it is no tar, neither plain nor gzip"},
		"noise":       {[]byte(strings.Repeat("noise", 400)), "it is no tar, neither plain nor gzip"},
		"cut":         {goodArchive(t)[:700], "it ends too early, behind entry 1"},
		"damaged":     {damaged, "it is damaged behind entry 1"},
		"cut gzip":    {zipped.Bytes()[:zipped.Len()-20], "it ends too early, behind entry 7"},
		"broken gzip": {flipped, "its compressed bytes are damaged"},
	} {
		dir := t.TempDir()
		err := Unpack(context.Background(), bytes.NewReader(c.bytes), dir, DefaultLimits())
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "archive/tar") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestReadTreeRefusesWhatCannotCross(t *testing.T) {
	for name, c := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"a link out":     {func(dir string) error { return os.Symlink("../../x", filepath.Join(dir, "l")) }, "leaves"},
		"a fifo":         {func(dir string) error { return mkfifo(filepath.Join(dir, "p")) }, "neither"},
		"a bad name":     {func(dir string) error { return os.WriteFile(filepath.Join(dir, "a\xffb"), nil, 0o644) }, "UTF-8"},
		"an unfinished":  {func(dir string) error { return os.WriteFile(filepath.Join(dir, markerName), nil, 0o644) }, "unfinished"},
		"logs with logs": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "logs"), nil, 0o644) }, "log folder"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tree(t, t.TempDir(), sampleTree())
			must(t, c.make(dir))
			if _, err := ReadTree(context.Background(), dir, "it"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := ReadTree(context.Background(), t.TempDir(), "it"); err == nil {
		t.Error("an empty folder is a release")
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(goodArchive(f))
	f.Add(archive(f, entry{name: "l", kind: tar.TypeSymlink, link: "d"}, entry{name: "l/x", kind: tar.TypeReg, data: "1"}))
	f.Add(archive(f, entry{name: "a", kind: tar.TypeReg, data: "1"}, entry{name: "b", kind: tar.TypeLink, link: "a"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "in")
		must(t, os.Mkdir(dir, 0o755))
		if err := Unpack(context.Background(), bytes.NewReader(b), dir, Limits{Bytes: 1 << 20, Entries: 100}); err != nil {
			return
		}
		if outside, _ := os.ReadDir(parent); len(outside) != 1 {
			t.Fatalf("written outside: %v", outside)
		}
		must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type()&fs.ModeSymlink != 0 {
				if resolved, evalErr := filepath.EvalSymlinks(p); evalErr == nil && filepath.Base(p) != logsLink && !strings.HasPrefix(resolved+"/", dir+"/") {
					t.Fatalf("%s leads to %s", p, resolved)
				}
			}
			return err
		}))
	})
}

func FuzzReadPayload(f *testing.F) {
	sum := Digest([]byte("page"))
	m := &Manifest{Files: map[string]File{"a": {SHA256: sum, Size: 4, Mode: modeFile}}}
	good := archive(f, entry{name: contentPrefix + sum, kind: tar.TypeReg, data: "page"})
	f.Add(good)
	f.Add(archive(f, entry{name: contentPrefix + sum, kind: tar.TypeReg, data: "PAGE"}))
	f.Add(archive(f, entry{name: contentPrefix + sum, kind: tar.TypeSymlink, link: "x"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var stored []string
		err := ReadPayload(bytes.NewReader(b)).contents(context.Background(), m, func(sha string, size int64, body io.Reader) error {
			data, err := io.ReadAll(body)
			if err == nil && (sha != sum || int64(len(data)) != size) {
				t.Fatalf("%s with %d bytes of %d", sha, len(data), size)
			}
			stored = append(stored, string(data))
			return err
		})
		if err == nil && len(stored) > 0 && (len(stored) > 1 || stored[0] != "page") {
			t.Fatalf("taken: %q", stored)
		}
	})
}
