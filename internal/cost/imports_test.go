package cost_test

import (
	"testing"

	"holdfast/internal/deptest"
)

// Dollars need nobody: not the domain, and no client.
func TestImports(t *testing.T) { deptest.Only(t) }
