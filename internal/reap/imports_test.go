package reap_test

import (
	"testing"

	"holdfast/internal/deptest"
)

// The reaper looks after batches, and knows AWS no more than they do.
func TestImports(t *testing.T) {
	deptest.Only(t,
		"holdfast/internal/lease", "holdfast/internal/openai", "holdfast/internal/batch", "holdfast/internal/bridge",
		"github.com/go-json-experiment/json", "github.com/cenkalti/backoff/v5")
}
