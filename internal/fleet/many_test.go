package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"agentworks-deploy/internal/hosts"
)

func named(n int) []*hosts.Host {
	list := make([]*hosts.Host, n)
	for i := range list {
		list[i] = &hosts.Host{Name: fmt.Sprintf("h%02d", i)}
	}
	return list
}

func TestEachKeepsTheOrderAndTheBound(t *testing.T) {
	var now, most atomic.Int32
	var gate sync.WaitGroup
	gate.Add(3)
	var got []string
	code := Each(t.Context(), Many{Parallel: 3}, named(12), func(_ context.Context, h *hosts.Host) (string, int, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if h.Name < "h03" { // the first three really are there together
			gate.Done()
			gate.Wait()
		}
		if h.Name == "h05" {
			return h.Name, 3, errors.New("unreachable")
		}
		return h.Name, 0, nil
	}, func(r Result[string]) { got = append(got, r.Value) })
	if !slices.IsSorted(got) || len(got) != 12 || most.Load() != 3 || code != 3 {
		t.Errorf("%v, at most %d at once, exit %d", got, most.Load(), code)
	}
}

func TestEachStops(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, tt := range []struct {
		name        string
		ctx         context.Context
		many        Many
		codes       []int
		asked, exit int
	}{
		{"failed canary", t.Context(), Many{Parallel: 4, Canary: true}, []int{1, 0, 0}, 1, 1},
		{"good canary", t.Context(), Many{Parallel: 4, Canary: true}, []int{0, 1, 3}, 3, 3},
		{"no canary", t.Context(), Many{Parallel: 1}, []int{1, 0, 0}, 3, 1},
		{"wrong words", t.Context(), Many{Parallel: 1}, []int{2, 0, 0}, 1, 2},
		{"interrupted", ended, Many{Parallel: 2}, []int{0, 0}, 0, 130},
		{"locked", t.Context(), Many{Parallel: 2}, []int{1, 3, 4, 0}, 4, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked atomic.Int32
			skipped := 0
			code := Each(tt.ctx, tt.many, named(len(tt.codes)), func(_ context.Context, h *hosts.Host) (int, int, error) {
				asked.Add(1)
				var i int
				_, _ = fmt.Sscanf(h.Name, "h%d", &i) // the name is ours
				return 0, tt.codes[i], nil
			}, func(r Result[int]) {
				if r.Skipped {
					skipped++
				}
			})
			if int(asked.Load()) != tt.asked || skipped != len(tt.codes)-tt.asked || code != tt.exit {
				t.Errorf("%d asked, %d skipped, exit %d; want %d asked, exit %d", asked.Load(), skipped, code, tt.asked, tt.exit)
			}
		})
	}
}

func TestProgressLinesNameTheirHost(t *testing.T) {
	var out strings.Builder
	f := (&Fleet{Log: &out}).On(&hosts.Host{Name: "rts"})
	fmt.Fprint(f.Log, "one\ntw")
	fmt.Fprint(f.Log, "o\n")
	if out.String() != "rts: one\nrts: two\n" {
		t.Errorf("%q", out.String())
	}
}
