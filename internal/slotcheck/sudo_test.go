package slotcheck

import (
	"slices"
	"strings"
	"testing"
)

func TestU01SudoListIsReadWhole(t *testing.T) {
	const head = "Matching Defaults entries for vs on lab:\n    env_reset, secure_path=/usr/bin\\:/bin\n\nUser vs may run the following commands on lab:\n"
	for _, tt := range []struct {
		name, list string
		runAs      string
		commands   string
	}{
		{"one", "    (slot01) NOPASSWD: /l/slotctl exec\n", "slot01", "/l/slotctl exec"},
		{"wrapped", "    (slot01, slot02,\n        slot03) NOPASSWD:\n        /l/slotctl exec\n", "slot01 slot02 slot03", "/l/slotctl exec"},
		{"two commands", "    (slot01) NOPASSWD: /l/slotctl exec, /usr/bin/id\n", "slot01", "/l/slotctl exec|/usr/bin/id"},
		{"two rules", "    (slot01) NOPASSWD: /l/slotctl exec\n    (ALL : ALL) ALL\n", "slot01 ALL : ALL", "/l/slotctl exec|ALL"},
		{"tags", "    (root) NOPASSWD: SETENV: /usr/bin/id a\\,b\n", "root", `/usr/bin/id a\,b`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := parseSudoList(head + tt.list)
			var runAs, commands []string
			for _, r := range rules {
				runAs, commands = append(runAs, r.RunAs...), append(commands, r.Commands...)
			}
			if err != nil || strings.Join(runAs, " ") != tt.runAs || strings.Join(commands, "|") != tt.commands {
				t.Errorf("%v %v, %v", runAs, commands, err)
			}
		})
	}
	for _, bad := range []string{"", "no list", head + "    not a rule\n"} {
		if rules, err := parseSudoList(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, rules)
		}
	}
}

func FuzzParseSudoList(f *testing.F) {
	f.Add(" may run the following commands on x:\n    (a, b) NOPASSWD: /x y, /z\n        w\n")
	f.Fuzz(func(t *testing.T, out string) {
		rules, err := parseSudoList(out)
		if err != nil {
			return
		}
		for _, r := range rules {
			if slices.Contains(r.RunAs, "") || len(r.Commands) == 0 {
				t.Fatalf("%q: %+v", out, r)
			}
		}
	})
}
