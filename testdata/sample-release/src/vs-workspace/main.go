// Command vs-workspace is the sample release's workspace service.
package main

import (
	"os"

	"agentworks-deploy/testdata/sample-release/src/service"
)

func main() {
	os.Exit(service.Main("vs-workspace", "VS_WORKSPACE_ADDR", "127.0.0.1:8000"))
}
