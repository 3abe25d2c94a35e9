package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
)

var errFull = fmt.Errorf("%w: %w: the tenant has enough", bridge.ErrLater, bridge.ErrRefused)

// full refuses for now as long as that is so.
func full(is *bool) func(context.Context, int) error {
	return func(context.Context, int) error {
		if *is {
			return errFull
		}
		return nil
	}
}

// Refused for now: whoever asks hears so at once, and the id is free.
func TestRefusedForNow(t *testing.T) {
	r, is := newRig(t), true
	r.jobs.submit = full(&is)
	if _, err := r.bridge(nil).Submit(t.Context(), request("k"), start); !errors.Is(err, bridge.ErrLater) || !errors.Is(err, bridge.ErrRefused) {
		t.Fatal(err)
	}
	if _, there := r.table.Row("acme", "k"); there {
		t.Error("the claim stays")
	}
	is = false
	if _, err := r.bridge(nil).Submit(t.Context(), request("k"), start.Add(time.Second)); err != nil || r.state("k") != bridge.Confirmed {
		t.Errorf("%v, row is %q", err, r.state("k"))
	}
}

// A letter comes back until there is room, and its sender is told of no failure.
func TestLetterOfAFullTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, is := newPost(t), true
		p.jobs.submit = full(&is)
		p.queue.Post("start a")
		d := p.drainer(nil)
		for n := range 3 {
			if failed, sum := p.round(d); len(failed) != 1 || sum != (bridge.Drained{Later: 1}) {
				t.Fatalf("delivery %d: %v, %+v", n+1, failed, sum)
			}
			if took := p.returns(); took < 15*time.Second {
				t.Errorf("back after %v", took)
			}
		}
		is = false
		if _, sum := p.round(d); sum != (bridge.Drained{Started: 1}) || len(p.slot.told) != 0 || p.queue.Waiting() != 0 {
			t.Errorf("%+v, told %v, %d waiting", sum, p.slot.told, p.queue.Waiting())
		}
	})
}

// Nobody else may be there to ask again for what an owner left behind.
func TestResumeKeepsWhatIsRefusedForNow(t *testing.T) {
	r, is := newRig(t), true
	r.abandoned()
	r.jobs.submit = full(&is)
	if id, err := r.bridge(nil).Resume(t.Context(), "acme", nameOfK, stale, nil); id != idOfK || !errors.Is(err, bridge.ErrLater) {
		t.Fatalf("%q, %v", id, err)
	}
	row, there := r.table.Row("acme", "k")
	if !there || row.State != bridge.Reserved || !row.Due.Equal(stale.Add(bridge.DefaultClaimStale)) {
		t.Fatalf("%+v: it is submitted again when it turns stale again", row)
	}
	is = false
	if id, err := r.bridge(nil).Resume(t.Context(), "acme", nameOfK, stale.Add(bridge.DefaultClaimStale+time.Millisecond), nil); id != idOfK || err != nil || r.state("k") != bridge.Confirmed {
		t.Errorf("%q, %v", id, err)
	}
}
