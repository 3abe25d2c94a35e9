package door_test

import (
	"testing"

	"holdfast/internal/deptest"
)

// A door knows what its letters may ask for, and no AWS.
func TestImports(t *testing.T) {
	deptest.Only(t, "holdfast/events", "holdfast/internal/access", "holdfast/internal/batch", "holdfast/internal/bridge", "holdfast/internal/lease", "holdfast/internal/openai",
		"github.com/go-json-experiment/json", "github.com/cenkalti/backoff/v5", "github.com/santhosh-tekuri/jsonschema/v6", "golang.org/x/text")
}
