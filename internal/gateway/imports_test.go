package gateway_test

import (
	"testing"

	"holdfast/internal/deptest"
)

// The gateway knows neither Lambda nor AWS, nor how upstreams are reached.
func TestImports(t *testing.T) {
	deptest.Only(t, "holdfast/internal/access", "holdfast/internal/batch", "holdfast/internal/config", "holdfast/internal/lease", "holdfast/internal/openai",
		"github.com/go-json-experiment/json", "github.com/cenkalti/backoff/v5")
}
