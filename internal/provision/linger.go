package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"agentworks-deploy/internal/accounts"
	"agentworks-deploy/internal/report"
	"agentworks-deploy/internal/sandbox/slots"
	"agentworks-deploy/internal/units"
)

// linger starts the service account's own manager, now and at each boot. It is
// the last step, because a manager keeps the groups it started with.
func (r *run) linger(context.Context) (findings, error) {
	var f findings
	if r.Host.Release.Manager == "system" {
		f.right = "the system's manager runs the services: the account needs none"
		return f, nil
	}
	uid := r.roster.service.UID
	lingers, err := exists(r.sys.at("/var/lib/systemd/linger/" + r.l.Product))
	if err != nil {
		return f, err
	}
	if !lingers {
		f.add("", "let %s linger, which starts its service manager", r.l.Product)
	}
	runs, err := exists(r.sys.at(fmt.Sprintf("/run/user/%d/systemd/private", uid)))
	if err != nil {
		return f, err
	}
	if lingers && !runs {
		f.add("", "start user@%d.service, the service manager of %s", uid, r.l.Product)
	}
	f.apply = func(ctx context.Context) error {
		if _, err := r.sys.tool(ctx, nil, "loginctl", "enable-linger", r.l.Product); err != nil {
			return err
		}
		_, err := r.sys.tool(ctx, nil, "systemctl", "start", fmt.Sprintf("user@%d.service", uid)) // waits until it is up
		return err
	}
	return f, nil
}

// exists is for folders that only root can write.
func exists(p string) (bool, error) {
	_, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// audit names processes of the service that started before their account got
// its groups. It restarts nothing: there may be live work (case P-11).
func (r *run) audit() error {
	if r.Plan {
		return nil
	}
	processes, err := accounts.Processes(r.sys.Proc, r.roster.service.UID)
	if err != nil {
		return err
	}
	stale := staleProcesses(processes, r.roster.groupIDs(), r.units())
	row := report.Row{State: report.OK, Check: "service-groups", Detail: "every running process of the service has all its groups"}
	if len(stale) > 0 {
		row.State = report.Warn
		row.Detail = fmt.Sprintf("%s started before the account got all its groups: restart its manager when no work is running", strings.Join(stale, ", "))
		row.Fix = &report.Fix{Where: report.OnHost, Argv: append([]string{"systemctl", "restart"}, r.units()...)}
	}
	r.rows = append(r.rows, row)
	return nil
}

// slotManagers warns of slots that linger: the manager of such a slot runs
// whatever it is asked to, outside every sandbox. A docker of the slot's own
// needs one; nothing else of ours does.
func (r *run) slotManagers() error {
	data, err := r.sys.read(r.l.SlotctlConfig(), configLimit)
	if err != nil {
		return err
	}
	if c, err := slots.ParseConfig(data); err == nil && c.SlotDocker {
		return nil
	}
	var linger []string
	for _, m := range r.roster.everySlot() {
		lingers, err := exists(r.sys.at("/var/lib/systemd/linger/" + m.name))
		if err != nil {
			return err
		}
		if lingers {
			linger = append(linger, m.name)
		}
	}
	if len(linger) > 0 {
		r.rows = append(r.rows, report.Row{State: report.Warn, Check: "slot-managers",
			Detail: strings.Join(linger, ", ") + " linger: a slot's own service manager runs whatever it is asked to, outside every sandbox",
			Fix:    &report.Fix{Where: report.OnHost, Argv: append([]string{"loginctl", "disable-linger"}, linger...)}})
	}
	return nil
}

// units are those whose processes must have the groups, and which are restarted
// for it: a service inherits the groups of its manager, so there it is the
// manager's own unit.
func (r *run) units() []string {
	if r.Host.Release.Manager != "system" {
		return []string{fmt.Sprintf("user@%d.service", r.roster.service.UID)}
	}
	var names []string
	for _, s := range r.Host.Release.Services {
		names = append(names, units.ServiceUnit(s))
	}
	return names
}

// staleProcesses names the processes that belong to one of the units and lack
// one of the groups: "vs-agent (pid 12, 50 groups missing)". The manager's PAM
// helper does not count: it never gets the groups, and it starts nothing.
func staleProcesses(processes []accounts.Process, groups []uint32, units []string) []string {
	var stale []string
	for _, p := range processes {
		for _, unit := range units {
			if lacks := p.Lacks(groups); len(lacks) > 0 && p.InUnit(unit) && p.Name != "(sd-pam)" {
				stale = append(stale, fmt.Sprintf("%s (pid %d, %d groups missing)", p.Name, p.PID, len(lacks)))
				break
			}
		}
	}
	return stale
}
