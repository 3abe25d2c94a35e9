package batch_test

import (
	"testing"

	"holdfast/internal/deptest"
)

// The domain never sees AWS. Each library here is for one job: strict JSON, and
// the jitter of retries.
func TestImports(t *testing.T) {
	deptest.Only(t,
		"holdfast/internal/lease", "holdfast/internal/openai",
		"github.com/go-json-experiment/json", "github.com/cenkalti/backoff/v5")
}
