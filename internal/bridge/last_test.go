package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/memory"
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

// stuck is a door that a test opens, and that takes note of what is told, and whether
// there was time to tell it.
type stuck struct {
	open func(ctx context.Context) error
	tell func(ctx context.Context) // nil: at once
	told []error
	late []error
}

func (s *stuck) Open(ctx context.Context, _ bridge.Letter, _ time.Time) (bridge.Request, error) {
	return bridge.Request{}, s.open(ctx)
}

func (s *stuck) Same(bridge.Letter, bridge.Request, bridge.Row) bool { return false }

func (s *stuck) Refuse(ctx context.Context, _ bridge.Letter, _ bridge.Request, why error, _ time.Time) error {
	if s.tell != nil {
		s.tell(ctx)
	}
	s.told, s.late = append(s.told, why), append(s.late, ctx.Err())
	return ctx.Err()
}

// What hangs to the end of the drain's time, or panics, is trouble like any other: at the
// last delivery there is time yet to leave word of it.
func TestLastDeliveryOfWhatHangs(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	burst := func(context.Context) error { panic("at the disco") }
	nearly := func(ctx context.Context) error { _ = memory.Wait(ctx, 10*time.Second-1); return errTrouble }
	slowly := func(ctx context.Context) { _ = memory.Wait(ctx, time.Second) }
	for name, c := range map[string]struct {
		open func(context.Context) error
		tell func(context.Context)
		says string
		sum  bridge.Drained
	}{
		"hangs":                    {hang, nil, context.DeadlineExceeded.Error(), bridge.Drained{Ended: 1}},
		"nearly to the end":        {nearly, slowly, "trouble", bridge.Drained{Ended: 1}},
		"panics":                   {burst, nil, "a bug", bridge.Drained{Ended: 1}},
		"panics over its word too": {burst, func(context.Context) { panic("again") }, "", bridge.Drained{Later: 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, d := newPost(t), &stuck{open: c.open, tell: c.tell}
			b, err := bridge.New(p.table.Bridge, p.jobs, &bridge.Options{Wait: -1})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			failed, sum := bridge.NewDrainer(b, d, p.queue, nil).Drain(ctx, []bridge.Letter{{ID: "a", Receives: 7, Last: true}}, began)
			if sum != c.sum || len(failed) != c.sum.Later || len(d.told) != c.sum.Ended || time.Since(began) > 10*time.Second+bridge.DrainMargin {
				t.Fatalf("%s: %+v, failed %v, told %v", name, sum, failed, d.told)
			}
			for i, why := range d.told {
				if _, last := errors.AsType[*bridge.LastError](why); !last || !strings.Contains(why.Error(), c.says) || d.late[i] != nil {
					t.Errorf("%s: told %v, %v", name, why, d.late[i])
				}
			}
		})
	}
}

// Word that hangs ends before its process does.
func TestLastWordThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		d := &stuck{open: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, tell: func(ctx context.Context) { <-ctx.Done() }}
		b, err := bridge.New(p.table.Bridge, p.jobs, &bridge.Options{Wait: -1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		failed, sum := bridge.NewDrainer(b, d, p.queue, nil).Drain(ctx, []bridge.Letter{{ID: "a", Last: true}}, began)
		if len(failed) != 1 || sum.Later != 1 || time.Since(began) > time.Second+bridge.DrainMargin || !errors.Is(d.late[0], context.DeadlineExceeded) {
			t.Errorf("%v, %+v, %v after %v", failed, sum, d.late, time.Since(began))
		}
	})
}
