// Command landlock-runner is the launcher: it confines one command and becomes
// it. In a release it is bin/video-studio-landlock-runner.
package main

import (
	"os"
	"runtime"

	"agentworks-deploy/internal/sandbox/launcher"
)

// Namespaces, capabilities and Landlock belong to a thread: all of the work is
// done on the first one, which is also the one that execs.
func init() { runtime.LockOSThread() }

func main() { os.Exit(launcher.Run(os.Args, os.Environ())) }
