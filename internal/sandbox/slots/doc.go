// Package slots is the hop from the service account to a slot: slotctl's
// allow-list (slotctl.json), the slot table as a reader, the rules that turn a
// user into a slot, the exec request, and slotctl itself, which runs as the slot
// and starts the one program that the request names and the allow-list permits.
//
// It imports the standard library and golang.org/x/sys only, because it is
// linked into the program that runs as a slot. It must never import YAML, a
// cloud SDK, cobra, or anything of this project outside internal/sandbox.
package slots
