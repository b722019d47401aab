// Package slotcheck proves, on the host, that a command run as a slot account
// starts and stays confined. Every probe goes through the chain that the
// platform's shell tool uses: grants, sudo, slotctl, launcher. It changes
// nothing, needs no root, and says of everything it could not look at that it
// could not.
//
// A check is a value (check.go): its name, whether it is asked once a host or
// once a slot, and what it does. Run (run.go) collects the facts that checks
// share, picks the slots and folders, runs the checks in parallel and answers
// with rows in a fixed order. docs/slotcheck.md tells the rest.
//
// It may import accounts, hosts, platform, report, safefs, units and sandbox. The
// chain itself must never import it.
package slotcheck
