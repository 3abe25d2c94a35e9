// Package deptest holds packages to the imports they are allowed, so that the
// direction of the house ({lease, openai} <- {batch, access} <- adapters <-
// functions) is a test and not a wish. For tests only.
package deptest

import (
	"os/exec"
	"strings"
	"testing"
)

// Only fails t when the package in the working directory depends, at any
// depth and outside its tests, on a package that is neither of the standard
// library nor one of allow, nor below one of them. It runs the go command.
func Only(t *testing.T, allow ...string) {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	paths := strings.Fields(string(out))
	if len(paths) == 0 {
		t.Fatal("go list named no package at all")
	}
	self := paths[len(paths)-1] // -deps lists a package after what it needs
	for _, path := range paths[:len(paths)-1] {
		if !allowed(path, allow) {
			t.Errorf("%s depends on %s, which it must not", self, path)
		}
	}
}

func allowed(path string, allow []string) bool {
	for _, a := range allow {
		if path == a || strings.HasPrefix(path, a+"/") {
			return true
		}
	}
	return false
}
