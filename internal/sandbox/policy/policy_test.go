package policy

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestParseReadsEveryField(t *testing.T) {
	want := Policy{
		ReadPaths: []string{"/r"}, WritePaths: []string{"/w"}, ListPaths: []string{"/"},
		WorkDir: "/w", PrivateTmp: true, PrivateRoots: []string{"/p"}, HiddenPaths: []string{"/h"},
		ReadOnlyOverlays: []string{"/w/o"}, BrowserScoped: true, PrivatePTS: true,
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Every field of the struct must be one that field knows, or a policy written
// by this very module would be refused.
func TestParseKnowsEveryFieldOfTheStruct(t *testing.T) {
	var p Policy
	kind := reflect.TypeOf(p)
	for i := range kind.NumField() {
		name := kind.Field(i).Tag.Get("json")
		if p.field(name) == nil {
			t.Errorf("field %q is not parsed", name)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	cases := []struct{ name, text, want string }{
		{"empty", ``, "not a JSON object"},
		{"list", `[]`, "not a JSON object"},
		{"null", `null`, "not a JSON object"},
		{"unknown field", `{"work_dir":"/","read_path":[]}`, `unknown field "read_path"`},
		{"field of another case", `{"work_dir":"/","Read_Paths":[]}`, `unknown field "Read_Paths"`},
		{"given twice", `{"work_dir":"/","work_dir":"/a"}`, "given twice"},
		{"trailing object", `{"work_dir":"/"}{}`, "more than one"},
		{"trailing word", `{"work_dir":"/"} x`, "more than one"},
		{"cut off", `{"work_dir":"/"`, "not a JSON object"},
		{"no work_dir", `{}`, "work_dir is required"},
		{"work_dir null", `{"work_dir":null}`, "null"},
		{"switch as text", `{"work_dir":"/","private_tmp":"true"}`, "private_tmp"},
		{"switch null", `{"work_dir":"/","private_tmp":null}`, "null"},
		{"path as list", `{"work_dir":["/"]}`, "work_dir"},
		{"list as text", `{"work_dir":"/","read_paths":"/"}`, "read_paths"},
		{"number in list", `{"work_dir":"/","read_paths":[1]}`, "read_paths"},
		{"null in list", `{"work_dir":"/","hidden_paths":[null]}`, "null is no path"},
		{"relative", `{"work_dir":"/","write_paths":["a/b"]}`, "not an absolute path"},
		{"empty path", `{"work_dir":"/","hidden_paths":[""]}`, "not an absolute path"},
		{"NUL", `{"work_dir":"/","read_only_overlays":["/a\u0000b"]}`, "NUL"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse(%s) = %v, want an error with %q", c.text, err, c.want)
			}
		})
	}
}

func TestParseTakesNullAsAnEmptyList(t *testing.T) {
	p, err := Parse([]byte(` {"work_dir":"/","read_paths":null} ` + "\n"))
	if err != nil || len(p.ReadPaths) != 0 {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestParseRefusesAnOversizedPolicy(t *testing.T) {
	text := `{"work_dir":"/"` + strings.Repeat(" ", MaxSize) + `}`
	if _, err := Parse([]byte(text)); err == nil {
		t.Error("an oversized policy was parsed")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"work_dir":"/","read_paths":["/a"],"private_tmp":true}`))
	f.Add([]byte(`{"work_dir":"/","read_paths":[null]}`))
	f.Add([]byte(`{"work_dir":"/","work_dir":"/"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		q, err := Parse(again)
		if err != nil {
			t.Fatalf("what was parsed is refused when written again: %v", err)
		}
		if third, _ := json.Marshal(q); string(third) != string(again) {
			t.Errorf("changed on the way: %s, %s", again, third)
		}
	})
}
