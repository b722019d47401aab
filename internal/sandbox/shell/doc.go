// Package shell wraps one command into the chain the way the platform's shell
// tool does: grants filtered for a slot, the launcher's policy on descriptor 3,
// an exec request for slotctl, and sudo to carry it to the slot. It is what the
// audit's probes and `sandbox run` use, so that both prove the real chain.
//
// It runs as the service account. It imports the standard library,
// golang.org/x/sys and internal/sandbox only.
package shell
