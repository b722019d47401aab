package fleet_test

import (
	"testing"

	"agentworks-deploy/internal/lab/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }
