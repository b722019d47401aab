package slotcheck

import (
	"slices"
	"strings"
	"testing"
)

func TestV07WhatAnInterpreterRuns(t *testing.T) {
	script := func(s string) what { return what{Kind: fromScript, Script: s} }
	for line, want := range map[string]what{
		"python3 /r/a.py -c x":             script("/r/a.py"),
		"python3 -I /tmp/x.py":             script("/tmp/x.py"),
		"python3 -c print(1)":              {Kind: fromWords},
		"python3.11 -Ic print(1)":          {Kind: fromWords},
		"python3 -W ignore a.py":           script("a.py"),
		"python3 -Wignore a.py":            script("a.py"),
		"python3 -X dev -m http.server":    {Kind: fromModule},
		"python3":                          {Kind: fromStdin},
		"python3 -":                        {Kind: fromStdin},
		"python3 -u -- a.py":               script("a.py"),
		"python3 --":                       {Kind: fromStdin},
		"node /r/server.js":                script("/r/server.js"),
		"node -e 1":                        {Kind: fromWords},
		"node -pe 1":                       {Kind: fromWords},
		"node --eval=1":                    {Kind: fromWords},
		"node --max-old-space-size=4 a.js": script("a.js"),
		"node -r ts-node/register a.ts":    script("a.ts"),
		"node --import=x --require y a.js": script("a.js"),
		"deno run --allow-net a.ts":        script("a.ts"),
		"deno run -":                       {Kind: fromStdin},
		"deno eval 1":                      {Kind: fromWords},
		"bun run a.ts":                     script("a.ts"),
		"bun -e 1":                         {Kind: fromWords},
		"bun a.ts":                         script("a.ts"),
		"ruby -rjson -e 1":                 {Kind: fromWords},
		"ruby -I lib a.rb":                 script("a.rb"),
		"perl -lane 1":                     {Kind: fromWords},
		"perl -Ilib a.pl":                  script("a.pl"),
		"perl -w a.pl":                     script("a.pl"),
		"php -c /etc/php.ini a.php":        script("a.php"),
		"php -r 1":                         {Kind: fromWords},
		"php -S 127.0.0.1:80 router.php":   script("router.php"),
	} {
		words := strings.Fields(line)
		in, ok := interpreterOf("/usr/bin/" + words[0])
		if !ok {
			t.Errorf("%s is no interpreter", words[0])
			continue
		}
		if got := in.runs(words[1:]); got != want {
			t.Errorf("%s: %+v, want %+v", line, got, want)
		}
	}
	for _, exe := range []string{"/bin/sh", "/usr/bin/pythonx", "/r/bin/vs-agent", "/usr/bin/perldoc", "/usr/bin/nodelet"} {
		if _, ok := interpreterOf(exe); ok {
			t.Errorf("%s taken for an interpreter", exe)
		}
	}
	if _, ok := interpreterOf("/usr/bin/python3.11 (deleted)"); !ok {
		t.Error("a deleted interpreter still runs")
	}
}

func FuzzInterpreter(f *testing.F) {
	f.Add("python3\x00-Ic\x00x")
	f.Add("deno\x00run\x00-\x00")
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, "\x00")
		for _, in := range interpreters() {
			got := in.runs(words)
			if (got.Kind == fromScript) != (got.Script != "") && !slices.Contains(words, "") {
				t.Fatalf("%q: %+v", words, got)
			}
			if got.Script != "" && !slices.Contains(words, got.Script) {
				t.Fatalf("%q: %+v", words, got)
			}
		}
	})
}
