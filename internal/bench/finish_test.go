package bench

import "testing"

// The finisher gets through what its bench makes up, to the last line, and what is
// counted is what was made.
func TestFinishMade(t *testing.T) {
	run, err := FinishMade(2_750, 3_000)
	if err != nil {
		t.Fatal(err)
	}
	if least := int64(2_750 * 3_000); run.Bytes < least || run.Bytes > 2*least || run.Saves != 1 || run.Resumed != 0 {
		t.Errorf("%+v", run)
	}
}

// Long replies are not held, and that is what is measured of them.
func TestFinishMadeOfLongReplies(t *testing.T) {
	const lines, reply = 120, 256 << 10
	run, err := FinishMade(lines, reply)
	if err != nil {
		t.Fatal(err)
	}
	if least := int64(lines * reply); run.Bytes < least || run.Bytes > least+least/10 || run.Resumed == 0 {
		t.Errorf("%+v", run)
	}
}
