package batch

import (
	"testing"
	"time"

	"holdfast/internal/frozen"
)

// A breaker outlives the run that heard the errors. A function that was frozen in
// between may ask a shut model as soon as one that was not.
func TestBreakerOfAFrozenFunction(t *testing.T) {
	began := time.Now()
	b := &breaker{storm: 2}
	b.heard(refusal, "status 503", began)
	b.heard(refusal, "status 503", frozen.Thawed(t, began, 5*time.Second))
	way, askAt := b.state()
	if way != shut {
		t.Fatalf("after two refusals in 5 s it is %v", way)
	}
	if later := frozen.Thawed(t, began, time.Minute); later.Before(askAt) {
		t.Errorf("a minute later nobody may ask before %v", askAt)
	}
	b.asked(frozen.Thawed(t, began, time.Minute))
	if _, askAt = b.state(); frozen.Thawed(t, began, 2*time.Minute).Before(askAt) {
		t.Errorf("a minute after that nobody may ask before %v", askAt)
	}
}
