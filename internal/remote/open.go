package remote

import (
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

// Open opens host's channel for role. Nothing is sent before the first Run.
func Open(host *hosts.Host, role Role) (Channel, error) {
	way, key, account := host.Channels.Admin, "channels.admin", "root"
	become := false // root's login becomes the account (case B55)
	if role == Service {
		way, account = host.Channels.ForService(), host.Product
		if become = host.Channels.Service == (hosts.Channel{}); !become {
			key = "channels.service"
		}
	}
	switch {
	case way.Local != nil:
		return newLocal(role, host.Product)
	case way.Lab != nil:
		return newLab(way.Lab.Name, account)
	case way.SSH != nil:
		if become = become || role == Service && way.SSH.User == "root"; !become {
			account = ""
		}
		return newSSH(*way.SSH, account), nil
	case way.SSM != nil:
		return newSSM(*way.SSM, key+".ssm", account), nil
	}
	return nil, report.Coded(report.ExitUsage, "%s has no %s channel: add %s to its host file", host.Name, role, key)
}
