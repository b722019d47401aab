package hosts

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestB82EnvironmentFileAsSystemdReadsIt(t *testing.T) {
	tests := []struct {
		name, in string
		want     []Assignment
	}{
		{"plain", "A=1\nB=two words \n", []Assignment{{"A", "1", 1}, {"B", "two words", 2}}},
		{"CRLF", "A=1\r\nB=\"2\"\r\n", []Assignment{{"A", "1", 1}, {"B", "2", 2}}},
		{"comments", "# A=1\n ; B=2\nC=3 # kept\n", []Assignment{{"C", "3 # kept", 3}}},
		{"comment with a backslash at its end", "# x\\\nA=1\n", []Assignment{{"A", "1", 2}}},
		{"no equals sign", "export A\nB=1", []Assignment{{"B", "1", 2}}},
		{"not a name", "export A=1\n1B=2\nÄ=3\n=4\n", nil},
		{"blanks round the name", "  A \t=  x\n", []Assignment{{"A", "x", 1}}},
		{"empty", "A=\nB=''\nC=\"\"", []Assignment{{"A", "", 1}, {"B", "", 2}, {"C", "", 3}}},
		{"single quotes", `A='a "b" \n '` + "\n", []Assignment{{"A", `a "b" \n `, 1}}},
		{"double quotes", `A="a \"b\" \$c \n "` + "\n", []Assignment{{"A", `a "b" $c \n `, 1}}},
		{"quotes joined", `A='a'  "b"c` + "\n", []Assignment{{"A", "abc", 1}}},
		{"quote in a word", "A=it's\n", []Assignment{{"A", "it's", 1}}},
		{"quote over lines", "A=\"1\n2\"\nB=3\n", []Assignment{{"A", "1\n2", 1}, {"B", "3", 3}}},
		{"continued", "A=1\\\n2\nB=3\n", []Assignment{{"A", "12", 1}, {"B", "3", 3}}},
		{"continued in quotes", "A=\"1\\\n2\"\n", []Assignment{{"A", "12", 1}}},
		{"escaped blank at the end", "A=1\\ \n", []Assignment{{"A", "1 ", 1}}},
		{"open quote ends with the file", "A='1", []Assignment{{"A", "1", 1}}},
		{"twice", "A=1\nA=2\n", []Assignment{{"A", "1", 1}, {"A", "2", 2}}},
		{"nothing", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseEnvironmentFile([]byte(tt.in))
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("ParseEnvironmentFile(%q) = %v, %v; want %v", tt.in, got, err, tt.want)
			}
		})
	}
}

func TestEnvironmentFileRefusedNamesNoValue(t *testing.T) {
	for _, in := range []string{"A=secret\x00", "B=1\nA=secret\xff\n"} {
		_, err := ParseEnvironmentFile([]byte(in))
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseEnvironmentFile(%q): error %v", in, err)
		}
	}
}

func FuzzParseEnvironmentFile(f *testing.F) {
	for _, s := range []string{"A=1\r\n", "A='x\n", `A="\"\\` + "`$\"", "# \\\nB=2", "A=\\\n\\", "A=1 \\\t\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseEnvironmentFile(data)
		if err != nil {
			return
		}
		lines := bytes.Count(data, []byte("\n")) + 1
		for _, a := range got {
			if !validEnvName(a.Name) || strings.ContainsRune(a.Value, 0) || a.Line < 1 || a.Line > lines {
				t.Fatalf("%q gave %+v", data, a)
			}
			if len(a.Value) > len(data) {
				t.Fatalf("%q gave a value longer than itself", data)
			}
		}
	})
}
