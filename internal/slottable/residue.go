package slottable

import (
	"fmt"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/safefs"
)

// Residue is what a slot holds beside its account: the entries of its three
// folders, and its running processes (case T-12).
type Residue struct {
	Home      int `json:"home"`
	State     int `json:"state"`
	Run       int `json:"run"`
	Processes int `json:"processes"`
}

// Clean says that there is nothing.
func (r Residue) Clean() bool { return r == Residue{} }

// String is "2 entries in home, 1 process"; "nothing" where it is clean.
func (r Residue) String() string {
	var parts []string
	for _, f := range []struct {
		n    int
		name string
	}{{r.Home, "home"}, {r.State, "state"}, {r.Run, "run"}} {
		if f.n > 0 {
			parts = append(parts, count(f.n, "entry", "entries")+" in "+f.name)
		}
	}
	if r.Processes > 0 {
		parts = append(parts, count(r.Processes, "process", "processes"))
	}
	if parts == nil {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// residues looks at slots; processes are counted once for all of them.
func (r *run) residues(names ...string) (map[string]Residue, error) {
	processes, err := accounts.Count(r.sys.Proc)
	if err != nil {
		return nil, err
	}
	root, err := safefs.OpenDir(r.at(r.SlotsRoot()))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	found := make(map[string]Residue, len(names))
	for _, slot := range names {
		account, ok := r.account(slot)
		if !ok {
			return nil, r.notProvisioned(fmt.Errorf("there is no account %s", slot))
		}
		res := Residue{Processes: processes[uint32(account.uid)]}
		for _, f := range []struct {
			folder string
			n      *int
		}{{"home", &res.Home}, {"state", &res.State}, {"run", &res.Run}} {
			if *f.n, err = entries(root, f.folder+"/"+slot); err != nil {
				return nil, err
			}
		}
		found[slot] = res
	}
	return found, nil
}

func entries(root *safefs.Dir, rel string) (int, error) {
	dir, err := root.Dir(rel)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	names, err := dir.Names()
	return len(names), err
}
