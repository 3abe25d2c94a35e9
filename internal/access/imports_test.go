package access_test

import (
	"testing"

	"holdfast/internal/deptest"
)

// Who may call is decided without AWS, HTTP or a library.
func TestImports(t *testing.T) {
	deptest.Only(t, "holdfast/internal/lease", "holdfast/internal/openai")
}
