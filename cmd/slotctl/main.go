// Command slotctl is what sudo runs as a slot: it starts the one program that
// the request on its standard input names and slotctl.json allows. See "Exec
// request" in docs/formats.md.
package main

import (
	"os"

	"golang.org/x/sys/unix"

	"agentworks-deploy/internal/sandbox/slots"
)

func main() {
	unix.Umask(0o007) // the service, in the slot's group, works with what a command makes
	sys := slots.System{Passwd: "/etc/passwd", Group: "/etc/group", Proc: "/proc"}
	os.Exit(slots.Main(os.Args[1:], sys, os.Stdin, os.Stderr))
}
