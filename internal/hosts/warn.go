package hosts

// Warnings say what loads and will probably be refused when a verb runs. They
// are no faults: an account of another name may have uid 0.
func (l *Loaded) Warnings() []*Problem {
	c := newChecker(l)
	admin, service := l.Host.Channels.Admin, l.Host.Channels.Service
	if ssh := admin.SSH; ssh != nil && ssh.User != "" && ssh.User != "root" {
		c.bad("channels.admin.ssh.user", "is %q: verbs of this channel run as root, and there is no sudo in between", ssh.User)
	}
	if ssh := service.SSH; ssh != nil && ssh.User != "" && ssh.User != "root" && ssh.User != l.Host.Product {
		c.bad("channels.service.ssh.user", "is %q: verbs of this channel run as the service account, %s, or as root, which becomes it", ssh.User, l.Host.Product)
	}
	if service.SSM.Many() && !admin.SSM.Many() {
		c.bad("channels.service.ssm.targets", "lead to many instances, and channels.admin to one host: deploy and sandbox run want one here as well")
	}
	return c.problems
}
