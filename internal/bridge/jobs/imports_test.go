package jobs

import (
	"testing"

	"holdfast/internal/deptest"
)

// What is between the bridge and a service knows no AWS, and links no simulation.
func TestImports(t *testing.T) {
	deptest.Only(t, "holdfast/internal/batch", "holdfast/internal/bridge", "holdfast/internal/lease", "holdfast/internal/openai",
		"holdfast/internal/outbound", "github.com/go-json-experiment/json", "github.com/cenkalti/backoff/v5")
}
