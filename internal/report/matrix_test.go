package report

import (
	"strings"
	"testing"
)

func TestWorst(t *testing.T) {
	for _, tt := range []struct {
		codes []int
		want  int
	}{
		{nil, 0}, {[]int{0, 0}, 0}, {[]int{0, 1, 0}, 1}, {[]int{1, 3}, 3}, {[]int{4, 3, 1}, 4}, {[]int{4, 2}, 2}, {[]int{1, 130, 4}, 130}, {[]int{1, 77}, 77},
	} {
		if got := Worst(tt.codes...); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.codes, got, tt.want)
		}
	}
}

func TestMatrix(t *testing.T) {
	reports := []Report{
		New("one", "basic", "", []Row{{State: Pass, Check: "a", Slot: "slot01"}, {State: Fail, Check: "a", Slot: "slot02"}, {State: Warn, Check: "b"}}, false),
		New("two\x1b", "basic", "", []Row{{State: Pass, Check: "a"}, {State: Error, Check: "c"}}, false),
	}
	var out strings.Builder
	if err := WriteMatrix(&out, reports, Style{}); err != nil {
		t.Fatal(err)
	}
	want := "CHECK  one   two\\x1b\na      FAIL  PASS\nb      WARN  -\nc      -     ERROR\nexit   1     3\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	for len(reports) <= wide {
		reports = append(reports, New("more", "basic", "", nil, false))
	}
	out.Reset()
	if err := WriteMatrix(&out, reports, Style{}); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(out.String(), "\n"); len(lines) != len(reports)+3 || !strings.HasSuffix(lines[1], "  a") || !strings.HasSuffix(lines[2], "  c") || lines[len(lines)-2] != "hosts: 7 all right, 2 not" {
		t.Errorf("got\n%s", out.String())
	}
}
