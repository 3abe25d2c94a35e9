package upload_test

import (
	"testing"

	"holdfast/internal/deptest"
)

// The domain never sees AWS; it stands on batch's ports and what they stand on.
func TestImports(t *testing.T) {
	deptest.Only(t,
		"holdfast/internal/lease", "holdfast/internal/openai", "holdfast/internal/batch",
		"github.com/go-json-experiment/json", "github.com/cenkalti/backoff/v5")
}
