package deptest

import "testing"

func TestAllowed(t *testing.T) {
	allow := []string{"holdfast/internal/lease", "example.com/json"}
	for path, want := range map[string]bool{
		"holdfast/internal/lease":    true,
		"example.com/json/jsontext":  true,
		"example.com/jsonx":          false,
		"holdfast/internal/leasenot": false,
		"holdfast/internal/aws":      false,
	} {
		if got := allowed(path, allow); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
