package access_test

import (
	"testing"

	"holdfast/internal/deptest"
)

// Who may call is decided without AWS. The JSON library comes with package openai,
// whose Usage a receipt holds.
func TestImports(t *testing.T) {
	deptest.Only(t, "holdfast/internal/lease", "holdfast/internal/openai", "github.com/go-json-experiment/json")
}
