package provision

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"agentworks-deploy/internal/safefs"
)

// shadowFile is the closed twin of an account file.
type shadowFile struct{ path, twin string }

func shadowFiles() []shadowFile {
	return []shadowFile{{"/etc/shadow", "/etc/passwd"}, {"/etc/gshadow", "/etc/group"}}
}

// shadowless names our accounts and groups that the open file holds and the
// closed one lacks: the machine stopped between the two. Without its line in
// shadow sudo refuses an account.
func (r *run) shadowless(file shadowFile) ([]string, error) {
	closed, err := r.lines(file.path)
	if err != nil || len(closed) == 0 { // a host without shadow files
		return nil, err
	}
	open, err := r.lines(file.twin)
	if err != nil {
		return nil, err
	}
	names := []string{}
	if file.twin == "/etc/group" {
		names = append(names, r.roster.shared.Name)
	}
	for _, m := range r.roster.slots {
		names = append(names, m.name)
	}
	return slices.DeleteFunc(names, func(name string) bool { return closed[name] || !open[name] }), nil
}

// repairShadow adds the missing lines, with a locked password.
func (r *run) repairShadow(ctx context.Context) error {
	for _, file := range shadowFiles() {
		lacks, err := r.shadowless(file)
		if err != nil {
			return err
		}
		if len(lacks) == 0 {
			continue
		}
		if err := r.addShadowLines(ctx, file, lacks); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) addShadowLines(ctx context.Context, file shadowFile, names []string) error {
	unlock, err := lockAccountFiles(ctx, r.sys.at(accountLock))
	if err != nil {
		return err
	}
	defer unlock()
	data, err := r.sys.read(file.path, fileLimit)
	if err != nil {
		return err
	}
	b := bytes.NewBuffer(data)
	if len(data) > 0 && data[len(data)-1] != '\n' {
		b.WriteByte('\n')
	}
	for _, name := range names {
		if file.twin == "/etc/group" {
			fmt.Fprintf(b, "%s:!*::\n", name)
		} else {
			fmt.Fprintf(b, "%s:!*:%d::::::\n", name, r.sys.Now().Unix()/86400)
		}
	}
	dir, name, err := safefs.OpenParent(r.sys.at(file.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	st, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	return dir.Replace(name, safefs.Content{From: b, UID: -1, GID: -1, Mode: st.Perm(), KeepXattrs: true})
}
