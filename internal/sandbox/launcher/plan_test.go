package launcher

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/sandbox/landlock"
)

var kindNames = map[spotKind]string{
	areaSpot: "area", openSpot: "open", pinSpot: "pin", closedSpot: "closed",
	sealedSpot: "sealed", frozenSpot: "frozen", hiddenSpot: "hidden",
}

// plannerFor makes a planner over folders that exist by being named. Words are
// "area /p", "write /p", "read /p", "list /p", "hide /p", "seal /p" and
// "absent /p" (a hidden path that does not exist; its folder does).
func plannerFor(words []string, entries map[string][]string) *planner {
	dir := func(name string) object { return object{path: name, mode: unix.S_IFDIR} }
	pl := &planner{
		openBelow: func(_ object, name string) (object, error) { return dir(name), nil },
		entries: func(folder object) ([]object, error) {
			names, known := entries[folder.path]
			if !known {
				return nil, errors.New("not listed")
			}
			var found []object
			for _, name := range names {
				found = append(found, dir(path.Join(folder.path, name)))
			}
			return found, nil
		},
	}
	kinds := map[string]grantKind{"write": write, "read": read, "list": list}
	for _, word := range words {
		what, name, _ := strings.Cut(word, " ")
		switch what {
		case "area":
			pl.areas = append(pl.areas, &area{object: dir(name), rights: landlock.List})
		case "tmp":
			pl.areas = append(pl.areas, &area{object: dir(name), rights: landlock.Write, writable: true})
		case "hide", "seal":
			pl.covers = append(pl.covers, cover{object: dir(name), name: name, hide: what == "hide"})
		case "absent":
			pl.covers = append(pl.covers, cover{object: dir(path.Dir(name)), name: name, hide: true, missing: true})
		default:
			pl.grants = append(pl.grants, grant{object: dir(name), name: name, kind: kinds[what]})
		}
	}
	return pl
}

func TestPlan(t *testing.T) {
	cases := []struct {
		name    string
		policy  string
		entries map[string][]string
		want    string
	}{
		{"a grant to write needs no mount", "write /w", nil, ""},
		{"a grant to read is closed", "read /r, list /l", nil, "closed /r"},
		{"the root folder cannot be", "read /", nil, ""},
		{"reading inside writing stays writing", "write /w, read /w/r, read /w", nil, ""},
		{"writing inside reading", "read /r, write /r/w", nil, "closed /r, open /r/w"},
		{"S35: two of them are not split", "read /r, write /r/a, write /r/b", nil, ""},
		{"one of them named twice", "read /r, write /r/a, write /r/a", nil, "closed /r, open /r/a"},
		{"bound back into a private area", "area /a, write /a/w, read /a/r, list /a/l", nil, "area /a, open /a/w, closed /a/r, closed /a/l"},
		{"the area itself is no bind", "area /a, write /a", nil, "area /a"},
		{"an area inside an area", "tmp /tmp, area /tmp/a, read /tmp/a/r", nil, "area /tmp, area /tmp/a, closed /tmp/a/r"},
		{"a grant around an area", "write /w, area /w/a, write /w/a/g", nil, "area /w/a, open /w/a/g"},
		{"hidden inside writing", "write /w, hide /w/h", nil, "hidden /w/h"},
		{"S43: the way to a cover is pinned", "write /w, hide /w/a/b/h", nil, "pin /w/a, pin /w/a/b, hidden /w/a/b/h"},
		{"pinned from the outermost grant", "write /w/a/b, write /w, seal /w/a/b/c", nil, "pin /w/a, pin /w/a/b, sealed /w/a/b/c"},
		{"the way to an area is pinned", "write /w, area /w/a/b", nil, "pin /w/a, area /w/a/b"},
		{"hidden outside every grant", "hide /x/h", nil, "hidden /x/h"},
		{"hidden in an area without a grant", "area /a, hide /a/h", nil, "area /a"},
		{"hidden in a grant in an area", "area /a, write /a/g, hide /a/g/h", nil, "area /a, open /a/g, hidden /a/g/h"},
		{"what is hidden is not bound back", "area /a, hide /a/g, write /a/g/x", nil, "area /a"},
		{"a grant below a sealed path", "write /w, seal /w/s, write /w/s/x", nil, "sealed /w/s"},
		{"sealed and bound back", "area /a, write /a/g, seal /a/g", nil, "area /a, closed /a/g"},
		{"sealed inside reading and writing", "read /r, write /r/w, seal /r/w/s", nil, "closed /r, open /r/w, sealed /r/w/s"},
		{"L06: an absent name freezes its folder", "write /w, absent /w/f/x", map[string][]string{"/w/f": {"a", "b"}},
			"frozen /w/f, open /w/f/a, open /w/f/b"},
		{"frozen once", "write /w, absent /w/x, absent /w/y", map[string][]string{"/w": {"a"}}, "frozen /w, open /w/a"},
		{"frozen with a cover and an area in it", "write /w, absent /w/x, hide /w/a, seal /w/b, area /w/c", map[string][]string{"/w": {"a", "b", "c", "d"}},
			"frozen /w, area /w/c, open /w/d, sealed /w/b, hidden /w/a"},
		{"nothing to freeze outside writing", "read /r, absent /r/x, absent /y", nil, "closed /r"},
		{"nothing to freeze in a private tmp", "write /, tmp /tmp, absent /tmp/x", nil, "area /tmp"},
		{"nothing to freeze in what is covered", "write /w, seal /w/s, absent /w/s/x", nil, "sealed /w/s"},
		{"a neighbour with the same beginning", "write /w, write /w2, hide /w2/a/h", nil, "pin /w2/a, hidden /w2/a/h"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			spots, err := plannerFor(strings.Split(c.policy, ", "), c.entries).plan()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range spots {
				got = append(got, kindNames[s.kind]+" "+s.path)
			}
			if have := strings.Join(got, ", "); have != c.want {
				t.Errorf("%s\ngot  %s\nwant %s", c.policy, have, c.want)
			}
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	crowd := make([]string, maxFrozen+1)
	for i := range crowd {
		crowd[i] = fmt.Sprint(i)
	}
	cases := []struct {
		policy  string
		entries map[string][]string
		want    string
	}{
		{"tmp /tmp, list /tmp/l", nil, "names alone"},
		{"write /w, absent /w/x", map[string][]string{"/w": crowd}, "more than 64 entries"},
		{"write /w, absent /w/x", nil, "not listed"},
		{"write /, absent /x", nil, "root folder"},
	}
	for _, c := range cases {
		_, err := plannerFor(strings.Split(c.policy, ", "), c.entries).plan()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.policy, err, c.want)
		}
	}
}

// FuzzPlan holds what no policy may break: a cover that can be seen is planned,
// and nothing is bound over it or over a private area afterwards.
func FuzzPlan(f *testing.F) {
	// A byte is one word: its upper part what, its lower part a path of a small
	// tree, so that every input is a policy.
	kinds := []string{"write", "read", "list", "area", "tmp", "hide", "seal", "absent"}
	var tree []string
	for level := []string{""}; len(tree) < 30; {
		var next []string
		for _, name := range level {
			next = append(next, name+"/a", name+"/b")
		}
		tree, level = append(tree, next...), next
	}
	f.Add([]byte{0x00, 0xa2, 0x66})
	f.Add([]byte{0x60, 0x02, 0xc6, 0xee})
	f.Add([]byte{0x20, 0x02, 0xc6, 0xbe})
	f.Fuzz(func(t *testing.T, policy []byte) {
		if len(policy) > 40 {
			return
		}
		var words []string
		for _, b := range policy {
			words = append(words, kinds[b>>5]+" "+tree[int(b&31)%len(tree)])
		}
		text := strings.Join(words, ", ")
		pl := plannerFor(words, nil)
		pl.entries = func(folder object) ([]object, error) {
			return []object{{path: folder.path + "/a", mode: unix.S_IFDIR}, {path: folder.path + "/b", mode: unix.S_IFDIR}}, nil
		}
		spots, err := pl.plan()
		if err != nil {
			return
		}
		for i, s := range spots {
			for _, above := range spots[i+1:] {
				switch {
				case within(s.path, above.path) && above.path != s.path:
					t.Errorf("%s: %s comes after what lies in it, %s", text, above.path, s.path)
				case s.kind == hiddenSpot && within(above.path, s.path) && above.kind < sealedSpot && above.kind != areaSpot:
					t.Errorf("%s: %s %s inside the hidden %s", text, kindNames[above.kind], above.path, s.path)
				case s.kind == sealedSpot && within(above.path, s.path) && (above.kind == openSpot || above.kind == pinSpot) && pl.areaOf(above.path) == pl.areaOf(s.path):
					t.Errorf("%s: %s %s inside the sealed %s", text, kindNames[above.kind], above.path, s.path)
				case s.kind == areaSpot && above.path == s.path && above.kind != hiddenSpot:
					t.Errorf("%s: %s over the private %s", text, kindNames[above.kind], s.path)
				}
			}
		}
		for _, c := range pl.covers {
			if c.missing || !pl.visible(c.path) {
				continue
			}
			if !pl.has(c.path, hiddenSpot) && !pl.has(c.path, sealedSpot) {
				t.Errorf("%s: %s is not covered", text, c.path)
			}
		}
	})
}
