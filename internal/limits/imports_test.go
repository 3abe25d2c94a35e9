package limits_test

import (
	"testing"

	"holdfast/internal/deptest"
)

// What is between domains knows no more than they do.
func TestImports(t *testing.T) {
	deptest.Only(t, "holdfast/internal/access", "holdfast/internal/batch", "holdfast/internal/lease", "holdfast/internal/openai",
		"github.com/go-json-experiment/json", "github.com/cenkalti/backoff/v5")
}
