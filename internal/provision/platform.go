package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/safefs"
	"agentworks-deploy/internal/units"
)

// platform refuses a machine that lacks what only the platform makes: the
// service account, its app folder, its units. All that is missing is named at
// once.
func (r *run) platform(ctx context.Context) error {
	db, err := r.load(ctx)
	if err != nil {
		return err
	}
	r.db = db
	var missing []string
	_, account := db.User(r.l.Product)
	if !account {
		missing = append(missing, "the service account "+r.l.Product)
	}
	if st, err := r.lstat(r.l.App); errors.Is(err, fs.ErrNotExist) {
		missing = append(missing, "the app folder "+r.l.App)
	} else if err != nil {
		return report.Coded(report.ExitState, "look at the app folder: %w", err)
	} else if !st.IsDir() {
		missing = append(missing, fmt.Sprintf("the app folder %s (there is a %s)", r.l.App, st.Kind()))
	}
	for _, service := range r.Host.Release.Services {
		unit := units.ServiceUnit(service)
		if !r.anywhere(unit) {
			missing = append(missing, fmt.Sprintf("the unit %s (in %s)", unit, r.unitFolders()[0]))
		}
	}
	if len(missing) > 0 {
		what := "the platform is not installed here"
		if account {
			what = "the platform here is not whole"
		}
		return report.Coded(report.ExitState, "%s, nothing was changed; missing: %s: %s", what, strings.Join(missing, ", "), r.platformComes(account))
	}
	r.real = r.l
	if r.real.App, err = r.resolve(r.l.App); err == nil {
		r.real.Docs, err = r.resolve(r.l.Docs)
	}
	return err
}

// platformComes says what brings the platform, or what is missing of it where its
// account is there.
func (r *run) platformComes(account bool) string {
	lab := r.Host.Channels.Admin.Lab
	switch {
	case lab != nil && !account:
		return "agentworks-deploy lab up --name " + lab.Name + " --reference"
	case lab != nil: // whose platform is made once
		return fmt.Sprintf("put it back, or make the lab anew: agentworks-deploy lab reset --name %[1]s && agentworks-deploy lab up --name %[1]s --reference", lab.Name)
	case account:
		return "the platform's own installation brings it, and provision never does"
	}
	return "install it first"
}

// load asks for every account that a run looks at by name.
func (r *run) load(ctx context.Context) (*accounts.Database, error) {
	names := []string{r.l.Product, r.l.SharedGroup()}
	for n := 1; n <= r.l.Count; n++ {
		names = append(names, r.l.Slot(n))
	}
	db, err := accounts.Load(ctx, r.sys.Getent, names...)
	if err != nil {
		return nil, fmt.Errorf("look at the accounts: %w", err)
	}
	return db, nil
}

// unitFolders are where the service manager looks, the usual place first.
func (r *run) unitFolders() []string {
	if r.Host.Release.Manager == "system" {
		return []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
	}
	return []string{path.Join(r.l.Home, ".config/systemd/user"), "/etc/systemd/user", "/run/systemd/user", "/usr/local/lib/systemd/user", "/usr/lib/systemd/user"}
}

// anywhere finds a unit; what it is and says is the manager's business, so a
// link counts, and so does a folder root must not walk into.
func (r *run) anywhere(unit string) bool {
	for _, dir := range r.unitFolders() {
		if _, err := r.lstat(path.Join(dir, unit)); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

func (r *run) lstat(p string) (safefs.Stat, error) {
	dir, name, err := safefs.OpenParent(r.sys.at(p))
	if err != nil {
		return safefs.Stat{}, err
	}
	defer dir.Close()
	return dir.Lstat(name)
}

// resolve follows root's own links, for what compares real paths and for the
// ancestors of the real folder (case P-06). A path that does not exist yet is
// its own; a link of anybody else is an error.
func (r *run) resolve(p string) (string, error) {
	dir, err := safefs.OpenDir(r.sys.at(p))
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return "", report.Coded(report.ExitState, "%w: root follows only root's own links; write the real folder into the host file", err)
	}
	defer dir.Close()
	real, err := filepath.EvalSymlinks(r.sys.at(p))
	if err != nil {
		return "", fmt.Errorf("resolve %s: %w", p, err)
	}
	return strings.TrimPrefix(real, r.sys.Root), nil
}
