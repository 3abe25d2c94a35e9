package bench

import "testing"

// Each kind of call is answered as it should be (a refusal is an error), and its
// percentiles are in order. How fast they are is cmd/bench's to judge.
func TestAPICalls(t *testing.T) {
	costs, err := APICalls(50)
	if err != nil {
		t.Fatal(err)
	}
	if len(costs) != 4 {
		t.Errorf("%d kinds", len(costs))
	}
	for _, c := range costs {
		t.Logf("%+v", c)
		if c.P50 <= 0 || c.P99 < c.P50 || c.NothingP99 < c.NothingP50 {
			t.Errorf("%+v", c)
		}
	}
}
