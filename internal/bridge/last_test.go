package bridge_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
)

// A letter's last delivery leaves word of its trouble, and is done with; without word,
// or held by somebody else's claim, it stays its queue's.
func TestLastDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		drain := func(body string, last bool) ([]bridge.Letter, bridge.Drained) {
			l := bridge.Letter{ID: body, Receives: 7, Last: last, Body: []byte(body)}
			return p.drainer(nil).Drain(t.Context(), []bridge.Letter{l}, time.Now())
		}
		if failed, sum := drain("trouble", false); len(failed) != 1 || sum != (bridge.Drained{Later: 1}) || len(p.slot.told) > 0 {
			t.Errorf("not the last: %v, %+v, %q", failed, sum, p.slot.told)
		}
		if failed, sum := drain("trouble", true); len(failed) > 0 || sum != (bridge.Drained{Ended: 1}) || len(p.slot.told) != 1 {
			t.Errorf("the last: %v, %+v, %q", failed, sum, p.slot.told)
		}
		p.slot.tell = func(int) error { return errTrouble }
		if failed, sum := drain("trouble", true); len(failed) != 1 || sum != (bridge.Drained{Later: 1}) || len(p.slot.told) != 1 {
			t.Errorf("without word: %v, %+v, %q", failed, sum, p.slot.told)
		}
	})
	why := error(&bridge.LastError{Receives: 7, Cause: fmt.Errorf("look: %w", errTrouble)})
	if !errors.Is(why, errTrouble) || errors.Is(why, bridge.ErrRefused) || !strings.Contains(why.Error(), "7 deliveries") {
		t.Errorf("%v", why)
	}
}
