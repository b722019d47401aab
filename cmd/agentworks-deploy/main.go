// Agentworks-deploy provisions slot hosts, deploys to them and proves them.
package main

import (
	"os"

	"agentworks-deploy/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ())) }
