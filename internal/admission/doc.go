// Package admission says, by names alone, which secrets the manifests of a host
// select that do not exist or that the Platform group was never granted, and
// which hosts may not go live at all. It reads manifests and stores on the host
// as the service account, and asks HashiCorp Vault's metadata and policies and
// the gateway; it never reads a secret's value, and no value and no user id
// leaves it. It may import accounts, hosts, platform, report, safefs, units and the
// sandbox's slot rules; programs that run as a slot must never import it.
package admission
