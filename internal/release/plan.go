package release

import (
	"fmt"
	"strings"

	"agentworks-deploy/internal/report"
)

// plan says in rows what do would do.
func (d *Deploy) plan() error {
	left, err := d.Store.leftovers(d.m.ID)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		d.row(report.Planned, "leftovers", "remove %s", strings.Join(left, ", "))
	}
	if d.look.Present {
		d.row(report.OK, "release", "%s is there and every byte is right", d.m.ID)
	} else {
		if d.look.Broken != nil {
			d.row(report.Planned, "release", "replace what is broken: %v", d.look.Broken)
		}
		d.row(report.Planned, "release", "%s: %s", d.m.ID, d.sizes())
	}
	if d.settled() {
		d.row(report.OK, "current", "names it, its services were judged healthy")
		return nil
	}
	if d.before == d.m.ID {
		d.row(report.Planned, "current", "names it already, but it was not judged healthy: to be judged anew")
	} else {
		d.row(report.Planned, "current", "%s → %s", d.was, d.m.ID)
	}
	d.row(report.Planned, "services", "restart %s", strings.Join(d.Health.Units, ", "))
	return nil
}

func (d *Deploy) sizes() string {
	send := len(d.look.Missing)
	return fmt.Sprintf("%s, %s; %s to send (%s), %d already on the host",
		count(len(d.m.Files), "file"), human(d.m.size()), count(send, "content"), human(d.look.Bytes), len(d.m.contents())-send)
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
