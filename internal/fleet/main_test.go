package fleet_test

import (
	"fmt"
	"os"
	"testing"

	"agentworks-deploy/internal/lab/labtest"
)

// TestMain also is the Vault of the admission tests, in a lab.
func TestMain(m *testing.M) {
	if listen := os.Getenv("FLEET_TEST_VAULT"); listen != "" {
		fmt.Fprintln(os.Stderr, standIn(listen, os.Stdout))
		os.Exit(1)
	}
	labtest.Main(m)
}
