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
	}
	return nil, report.Coded(report.ExitUsage, "the %s channel of %s is %s, which this version cannot reach: only local and lab", role, host.Name, way)
}
