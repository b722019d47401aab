package onhost

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// gathered is a call whose half and body are files that came ahead.
func gathered(p *Program, body File, folder, libexec, app string) plan {
	words := []string{folder, libexec, app, "root"}
	for name, f := range map[string]File{halfParcel: p.File, bodyParcel: body} {
		words = append(words, name, f.sum, strconv.FormatInt(f.size, 10))
	}
	return plan{argv: sh(gatherScript+runGathered, append(words, "--", p.sum)...)}
}

func put(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestGatheredFilesAreFoundByTheirDigest(t *testing.T) {
	p := testProgram(t)
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	body, text := fileOf(t, 30_000)
	other := slices.Concat(text[:len(text)-1], []byte("!"))
	half, slotctl := "agentworks-deploy", "slotctl"
	for name, at := range map[string]func(libexec, app, folder string){
		"delivered": func(_, _, f string) { put(t, f+"/in-"+p.sum, program); put(t, f+"/in-"+body.sum, text) },
		"installed": func(l, _, _ string) { put(t, l+"/"+half, program); put(t, l+"/"+slotctl, text) },
		"stored":    func(_, a, _ string) { put(t, a+"/.deploy/"+p.sum, program); put(t, a+"/.deploy/"+body.sum, text) },
		"a release's": func(l, a, _ string) {
			put(t, l+"/"+half, other)
			put(t, l+"/"+slotctl, other)
			put(t, a+"/releases/x/bin/"+half, program)
			put(t, a+"/current/bin/"+slotctl, text)
		},
	} {
		dir := t.TempDir()
		folder, libexec, app := dir+"/own", dir+"/libexec", dir+"/app"
		at(libexec, app, folder)
		never := folder + "/in-" + strings.Repeat("0", 64)
		put(t, never, []byte("of a run that never came"))
		long := time.Now().Add(-time.Hour)
		if err := os.Chtimes(never, long, long); err != nil {
			t.Fatal(err)
		}
		e, err := p.exchange(t.Context(), narrow{localChannel(t)}, gathered(p, body, folder, libexec, app), Request{Verb: "count"}, nil, io.Discard)
		if err != nil || string(e.Data) != "30000" {
			t.Errorf("%s: %s bytes, %v", name, e.Data, err)
		}
		if _, err := os.Lstat(folder); !os.IsNotExist(err) {
			left, _ := os.ReadDir(folder)
			t.Errorf("%s: left behind: %v", name, left)
		}
	}
}

func TestMissingParcelsAreNamed(t *testing.T) {
	p := testProgram(t)
	body, text := fileOf(t, 30_000)
	dir := t.TempDir()
	folder := dir + "/own"
	put(t, dir+"/libexec/slotctl", text)
	// What bears the right name and size and is something else is not taken.
	put(t, folder+"/in-"+p.sum, make([]byte, p.size))
	_, err := p.exchange(t.Context(), narrow{localChannel(t)}, gathered(p, body, folder, dir+"/libexec", dir+"/app"), Request{Verb: "count"}, nil, io.Discard)
	missing, ok := errors.AsType[*missingError](err)
	if !ok || !slices.Equal(missing.names, []string{halfParcel}) {
		t.Fatalf("%v", err)
	}
	if left, _ := filepath.Glob(folder + "/[^i]*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Two runs at once deliver into one folder: neither takes what the other is about
// to use, and what was planted in the place of files stops nobody.
func TestGatherLeavesTheDeliveriesOfOthers(t *testing.T) {
	p := testProgram(t)
	body, text := fileOf(t, 30_000)
	for name, run := range map[string]func(folder string) plan{
		"gathered": func(folder string) plan { return gathered(p, body, folder, folder+"/none", folder+"/none") },
		"uploaded": func(folder string) plan { return p.uploadTo(folder, "", "remove") },
	} {
		folder := t.TempDir()
		program, err := os.ReadFile(p.Path)
		if err != nil {
			t.Fatal(err)
		}
		put(t, folder+"/in-"+p.sum, program)
		put(t, folder+"/in-"+body.sum, text)
		others := folder + "/in-" + strings.Repeat("1", 64)
		put(t, others+".7", []byte("a piece"))
		for _, planted := range []string{"/in-x", "/half-x", "/body-x"} {
			if err := os.Mkdir(folder+planted, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := syscall.Mkfifo(folder+"/.half.agentworks-new", 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := p.exchange(t.Context(), narrow{localChannel(t)}, run(folder), Request{Verb: "count"}, nil, io.Discard); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := os.ReadFile(others + ".7"); err != nil || string(got) != "a piece" {
			t.Errorf("%s: another run's piece: %q, %v", name, got, err)
		}
		if _, err := os.Lstat(folder + "/in-" + p.sum); name == "gathered" && !os.IsNotExist(err) {
			t.Errorf("%s: what was delivered for this run is left: %v", name, err)
		}
	}
}
