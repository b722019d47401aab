package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadAptSourcesTakesOnlyDebian(t *testing.T) {
	for _, c := range []struct {
		name, file, text string
		want             string // lines and stanzas that are kept
	}{
		{"line", "sources.list", "deb http://deb.debian.org/debian bookworm main contrib # all\n", "deb http://deb.debian.org/debian bookworm main contrib"},
		{"line with options", "sources.list.d/a.list", "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://m/debian bookworm-security main\n", "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://m/debian bookworm-security main"},
		{"source packages", "sources.list", "deb-src http://deb.debian.org/debian bookworm main\n", ""},
		{"another suite", "sources.list", "deb http://deb.debian.org/debian trixie main\n", ""},
		{"another vendor, own suite", "sources.list.d/a.list", "deb http://vendor/apt sdk-bookworm main\n", ""},
		{"another vendor, own component", "sources.list.d/a.list", "deb http://vendor/linux bookworm stable\n", ""},
		{"another vendor, own key", "sources.list.d/a.list", "deb [signed-by=/etc/apt/keyrings/vendor.asc] http://vendor bookworm main\n", ""},
		{"open bracket", "sources.list.d/a.list", "deb [arch=amd64 http://vendor bookworm main\n", ""},
		{"commented", "sources.list", "# deb http://deb.debian.org/debian bookworm main\n", ""},
		{"not apt's file", "sources.list.d/a.list.save", "deb http://deb.debian.org/debian bookworm main\n", ""},
		{
			"stanza", "sources.list.d/debian.sources",
			"Types: deb\n# frozen\nURIs: http://deb.debian.org/debian\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\nTypes: deb\nURIs: http://vendor\nSuites: nodistro\nComponents: main\n",
			"Types: deb\nURIs: http://deb.debian.org/debian\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg",
		},
		{"disabled stanza", "sources.list.d/debian.sources", "Types: deb\nEnabled: no\nURIs: http://m\nSuites: bookworm\nComponents: main\n", ""},
		{"folded field", "sources.list.d/debian.sources", "Types: deb\nURIs: http://m\nSuites:\n bookworm\n bookworm-updates\nComponents: main\n", "Types: deb\nURIs: http://m\nSuites:\n bookworm\n bookworm-updates\nComponents: main"},
		{"stanza with a vendor's key inside", "sources.list.d/v.sources", "Types: deb\nURIs: http://m\nSuites: bookworm\nComponents: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			etc := t.TempDir()
			path := filepath.Join(etc, c.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			got, err := readAptSources(etc, "bookworm")
			if (err != nil) != (c.want == "") {
				t.Errorf("error %v", err)
			}
			if kept := strings.TrimSpace(got.Lines + got.Stanzas); kept != c.want {
				t.Errorf("kept\n%s\nwant\n%s", kept, c.want)
			}
		})
	}
}

func TestRecipeNameFollowsEveryPart(t *testing.T) {
	base := recipe{Version: 1, Suite: "bookworm", Arch: "amd64", Packages: []string{"sudo"}, Options: []string{"--x"}, Sources: aptSources{Lines: "a"}}
	seen := map[string]string{}
	for part, change := range map[string]func(*recipe){
		"nothing":  func(*recipe) {},
		"version":  func(r *recipe) { r.Version++ },
		"suite":    func(r *recipe) { r.Suite = "trixie" },
		"arch":     func(r *recipe) { r.Arch = "arm64" },
		"packages": func(r *recipe) { r.Packages = []string{"acl"} },
		"options":  func(r *recipe) { r.Options = nil },
		"sources":  func(r *recipe) { r.Sources.Stanzas = "b" },
	} {
		r := base
		change(&r)
		name, err := r.name()
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s give the same name", part, other)
		}
		seen[name] = part
	}
}

func FuzzAptSources(f *testing.F) {
	f.Add("deb [signed-by=/x] http://m bookworm main\n")
	f.Add("Types: deb\nSuites: bookworm\nComponents: main\n\n:\n x\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, kept := range []string{debianLines(text, "bookworm"), debianStanzas(text, "bookworm")} {
			if kept != "" && !strings.Contains(kept, "bookworm") {
				t.Errorf("kept %q of %q", kept, text)
			}
		}
	})
}
