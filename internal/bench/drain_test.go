package bench

import "testing"

// What the claim costs is two writes, and refusing a duplicate one read of what is
// there: the bounds are two each.
func TestCountDrain(t *testing.T) {
	c, err := CountDrain(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	if c.Bare < 2 || c.Message-c.Bare != 2 || c.Duplicate != 1 {
		t.Errorf("%+v", c)
	}
}
