package batches_test

import (
	"testing"

	"holdfast/internal/deptest"
)

// What is between two domains knows no more than they do.
func TestImports(t *testing.T) {
	deptest.Only(t, "holdfast/internal/batch", "holdfast/internal/bridge", "holdfast/internal/lease", "holdfast/internal/openai",
		"github.com/go-json-experiment/json", "github.com/cenkalti/backoff/v5")
}
