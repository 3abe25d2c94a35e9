package bridge_test

import (
	"testing"

	"holdfast/internal/deptest"
)

// Claiming knows neither batches nor AWS: what it submits is the Submitter's.
func TestImports(t *testing.T) { deptest.Only(t, "holdfast/internal/lease") }
