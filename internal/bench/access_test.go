package bench

import "testing"

// Whatever is in the table, access reads it once a request at most, and not at all for
// keys that a process knows.
func TestCountAccess(t *testing.T) {
	for _, n := range []int{1, 3 * accessTenants} {
		got, err := CountAccess(n, n)
		if err != nil {
			t.Fatal(err)
		}
		if got.Cold != 1 || got.Next > 1 || got.Warm != 0 || got.Later != 1 {
			t.Errorf("%d keys: %+v", n, got)
		}
	}
}
