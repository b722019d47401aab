package remote

import (
	"agentworks-deploy/internal/hosts"
	"agentworks-deploy/internal/report"
)

// Open opens host's channel for role. Nothing is sent before the first Run.
func Open(host *hosts.Host, role Role) (Channel, error) {
	way, account := host.Channels.Admin, "root"
	if role == Service {
		way, account = host.Channels.Service, host.Product
	}
	switch {
	case way.Local != nil:
		return newLocal(role, host.Product)
	case way.Lab != nil:
		return newLab(way.Lab.Name, account)
	case way.SSH != nil:
		return newSSH(*way.SSH, role, account), nil
	case way.SSM != nil:
		return newSSM(*way.SSM, account), nil
	}
	return nil, report.Coded(report.ExitUsage, "%s has no %s channel: add channels.%s to its host file", host.Name, role, role)
}
