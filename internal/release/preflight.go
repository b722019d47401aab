package release

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/units"
)

// Preflight asks, as the service account and without changing anything, whether
// a host is ready for a deploy: what only root could give it must be there.
type Preflight struct {
	Host    *hosts.Host
	Store   *Store
	Manager *units.Manager
	Getent  accounts.Getent
	Sudo    string // /usr/bin/sudo
	Linger  string // the folder of lingering accounts, /var/lib/systemd/linger
	// Admit gives the reasons why the host may not go live, and warnings.
	Admit func(ctx context.Context) []report.Row
}

// sudoDeadline ends a sudo that waits for somebody (case B18).
const sudoDeadline = 10 * time.Second

// check answers with a FAIL for each thing that is missing or forbids the host to
// go live, or one OK row. What provisioning makes is fixed by provisioning; unit
// files are the platform's.
func (p *Preflight) check(ctx context.Context) ([]report.Row, error) {
	rows := p.Admit(ctx)
	fail := func(fix *report.Fix, format string, args ...any) {
		rows = append(rows, report.Row{State: report.Fail, Check: "preflight", Detail: fmt.Sprintf(format, args...), Fix: fix})
	}
	provision := &report.Fix{Where: report.Operator, Argv: []string{"agentworks-deploy", "provision", p.Host.Name}}
	for _, missing := range p.folders() {
		fail(provision, "not provisioned: %s", missing)
	}
	if p.Store.Slots {
		missing, err := p.slots(ctx)
		if err != nil {
			return nil, err
		}
		for _, m := range missing {
			fail(provision, "not provisioned: %s", m)
		}
	}
	if p.Manager.User {
		if _, err := os.Lstat(filepath.Join(p.Linger, p.Host.Product)); errors.Is(err, fs.ErrNotExist) {
			fail(provision, "not provisioned: %s does not linger, so its services would end with its last session", p.Host.Product)
			return rows, nil
		}
	}
	missing, err := p.units(ctx)
	if err != nil {
		return rows, err
	}
	for _, u := range missing {
		fail(&report.Fix{Where: report.OnHost, Note: "put the unit file back; the platform's installation brings it, and a deploy never writes one"}, "%s", u)
	}
	if info, err := os.Lstat(p.Store.Layout.Current()); err == nil && info.Mode()&fs.ModeSymlink == 0 {
		fail(&report.Fix{Where: report.OnHost, Note: "look at what it holds and move it away"}, "%s is a %s and not a link to a release", p.Store.Layout.Current(), kindName(info.Mode()))
	}
	if report.Count(rows).Failed == 0 {
		rows = append(rows, report.Row{State: report.OK, Check: "preflight", Detail: "the host is provisioned, its services' units are there"})
	}
	return rows, nil
}

// folders tells what is wrong with the folders a deploy writes to.
func (p *Preflight) folders() []string {
	var missing []string
	for _, f := range []struct {
		dir  string
		look func(string) (fs.FileInfo, error)
	}{
		{p.Store.Layout.App, os.Stat}, // root may have put a link there
		{p.Store.Layout.Releases(), os.Lstat},
	} {
		dir := f.dir
		info, err := f.look(dir)
		switch {
		case err != nil:
			missing = append(missing, err.Error())
		case !info.IsDir():
			missing = append(missing, fmt.Sprintf("%s is a %s, not a folder", dir, kindName(info.Mode())))
		default:
			if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != p.Store.UID {
				missing = append(missing, fmt.Sprintf("%s does not belong to %s", dir, p.Host.Product))
			}
		}
	}
	return missing
}

// slots tells what of the chain is missing: programs, accounts, the sudo rule.
func (p *Preflight) slots(ctx context.Context) ([]string, error) {
	l := p.Store.Layout
	var missing []string
	for _, file := range []string{l.Slotctl(), l.SlotctlConfig(), l.SlotTable(), l.AdminHalf()} {
		if _, err := os.Stat(file); err != nil {
			missing = append(missing, err.Error())
		}
	}
	var names []string
	for n := 1; n <= l.Count; n++ {
		names = append(names, l.Slot(n))
	}
	known, err := accounts.Load(ctx, p.Getent, names...)
	if err != nil {
		return nil, err
	}
	var absent []string
	for _, name := range names {
		if _, ok := known.User(name); !ok {
			absent = append(absent, name)
		}
	}
	switch len(absent) {
	case 0:
	case 1:
		missing = append(missing, "there is no account "+absent[0])
	default:
		missing = append(missing, fmt.Sprintf("%d of %d slot accounts are missing, %s to %s", len(absent), len(names), absent[0], absent[len(absent)-1]))
	}
	if len(missing) > 0 || len(names) == 0 {
		return missing, nil // the rule would be refused for these reasons
	}
	if why := p.sudoRefuses(ctx, names[0]); why != "" {
		missing = append(missing, why)
	}
	return missing, ctx.Err()
}

func (p *Preflight) sudoRefuses(ctx context.Context, slot string) string {
	ctx, cancel := context.WithTimeout(ctx, sudoDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Sudo, "-n", "-l", "-u", slot, p.Store.Layout.Slotctl(), "exec")
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	why := strings.TrimSpace(string(out))
	if why == "" {
		why = err.Error()
	}
	return fmt.Sprintf("sudo does not offer %s as %s: %s", p.Store.Layout.Slotctl(), slot, strings.ReplaceAll(why, "\n", "; "))
}

// units names the services whose units are missing or cannot be loaded.
func (p *Preflight) units(ctx context.Context) ([]string, error) {
	states, err := p.Manager.States(ctx, Units(p.Host))
	if err != nil {
		return nil, report.Coded(report.ExitState, "ask the services' manager of %s: %w", p.Host.Product, err)
	}
	var missing []string
	for _, u := range states {
		if u.Load != "loaded" {
			where := "/etc/systemd/system"
			if p.Manager.User {
				where = filepath.Join(p.Store.Layout.Home, ".config/systemd/user")
			}
			missing = append(missing, fmt.Sprintf("unit %s is %s: there is no usable %s", u.Name, u.Load, filepath.Join(where, u.Name)))
		}
	}
	return missing, nil
}

// lacks says what the units of the host's services start or ask for below
// current and the release m does not hold: it is then no release for this host.
func (p *Preflight) lacks(ctx context.Context, m *Manifest) error {
	var lacks []string
	for _, unit := range Units(p.Host) {
		needs, err := p.Manager.Needs(ctx, unit, p.Store.Layout.Current())
		if err != nil {
			return report.Coded(report.ExitState, "ask what %s starts: %w", unit, err)
		}
		for _, need := range needs {
			if !m.holds(need) {
				lacks = append(lacks, fmt.Sprintf("%s, which %s needs", need, unit))
			}
		}
	}
	if len(lacks) > 0 {
		return report.Coded(report.ExitUsage, "%s is no release for %s, nothing was changed: it lacks %s; name the folder or tar of a build with --release", m.ID, p.Host.Name, strings.Join(lacks, ", "))
	}
	return nil
}

// Units are the units of the services that h names.
func Units(h *hosts.Host) []string {
	var names []string
	for _, s := range h.Release.Services {
		names = append(names, units.ServiceUnit(s))
	}
	return names
}

// room tells whether the disk takes size more bytes.
func (s *Store) room(size int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.Layout.Releases(), &st); err != nil {
		return fmt.Errorf("look for room in %s: %w", s.Layout.Releases(), err)
	}
	free := int64(st.Bavail) * st.Bsize
	if free < size+size/10 {
		return report.Coded(report.ExitState, "no room in %s: the release needs %s, %s are free", s.Layout.Releases(), human(size), human(free))
	}
	return nil
}

// human writes a number of bytes for a person.
func human(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < 3 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.1f %s", f, []string{"kB", "MB", "GB", "TB"}[i])
}
