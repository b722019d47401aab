// Command vs-agent is the sample release's agent service.
package main

import (
	"os"

	"agentworks-deploy/testdata/sample-release/src/service"
)

func main() {
	os.Exit(service.Main("vs-agent", "VS_AGENT_ADDR", "127.0.0.1:8001"))
}
