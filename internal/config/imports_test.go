package config

import (
	"os/exec"
	"strings"
	"testing"
)

// Every program parses its settings at cold start, and infra and the functions
// share this package: it stays on the standard library.
func TestImportsOnlyTheStandardLibrary(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		if path != "holdfast/internal/config" {
			t.Errorf("imports %s", path)
		}
	}
}
