package slottable

import (
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

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

// residues looks at slots; processes are counted once for all of them. Where
// there is no account of a slot, or no folder, there is nothing.
func (r *run) residues(names ...string) (map[string]Residue, error) {
	processes, err := accounts.Count(r.sys.Proc)
	if err != nil {
		return nil, err
	}
	root, err := safefs.OpenDir(r.at(r.SlotsRoot()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, r.notProvisioned(err)
	}
	if err != nil {
		return nil, r.blocked(err)
	}
	defer root.Close()
	found := make(map[string]Residue, len(names))
	for _, slot := range names {
		var res Residue
		if account, ok := r.own(slot); ok {
			res.Processes = processes[uint32(account.uid)]
		}
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

// entries of what is no folder are one: the thing itself.
func entries(root *safefs.Dir, rel string) (int, error) {
	dir, err := root.Dir(rel)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
		return 1, nil
	case err != nil:
		return 0, err
	}
	defer dir.Close()
	names, err := dir.Names()
	return len(names), err
}
