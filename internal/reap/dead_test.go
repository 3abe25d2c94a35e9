package reap_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/reap"
)

// deadPart makes one whose grace ends after grace.
func deadPart(grace time.Duration) func(*batch.Part) {
	return func(p *batch.Part) {
		p.State, p.Attempts, p.DeadAt, p.Due = batch.Dead, 3, time.Now(), time.Now().Add(grace)
	}
}

// A tenant's dead parts, page by page, those first that are to be sealed first,
// and nobody else's.
func TestDeadParts(t *testing.T) {
	in(t, func(w *world) {
		var want []batch.PartKey
		for i := range 3 {
			b := w.batch(30)
			for n := range 30 {
				k := w.part(b, n, deadPart(time.Duration(1+n/5+6*i)*time.Minute)) // five of each instant
				want = append(want, k)
			}
			w.part(b, 30, nil)
			other := b
			other.Tenant = "other"
			w.part(other, 0, deadPart(time.Minute))
		}
		for _, limit := range []int{1, 7, 90, reap.MaxDead} {
			var got []batch.PartKey
			var after reap.Place
			for pages := 0; ; pages++ {
				page, more, err := w.reaper.Dead(w.t.Context(), acme, after, limit)
				if err != nil || len(page) > limit || len(page) == 0 || pages > 100 {
					t.Fatalf("page of %d by %d: %v", len(page), limit, err)
				}
				for _, p := range page {
					got = append(got, p.PartKey)
					after = reap.PlaceOf(p)
				}
				if !more {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("by %d: %v\nwant %v", limit, got, want)
			}
		}
		// What was redriven while the list was read is left out, and ends no list.
		first := want[0]
		w.faults.After("Reaps.Due", 0, aside(func() {
			p := w.look(first)
			p.State, p.Ver = batch.Pending, p.Ver+1
			w.truth.Table.SeedPart(p)
		}))
		page, more, err := w.reaper.Dead(w.t.Context(), acme, reap.Place{}, 1)
		if err != nil || !more || len(page) != 1 || page[0].PartKey != want[1] {
			t.Errorf("%v, %t, %v", page, more, err)
		}
		for _, limit := range []int{0, -1, reap.MaxDead + 1} {
			if _, _, err := w.reaper.Dead(w.t.Context(), acme, reap.Place{}, limit); err == nil {
				t.Errorf("a limit of %d is taken", limit)
			}
		}
		if page, more, err := w.reaper.Dead(w.t.Context(), "nobody", reap.Place{}, 10); err != nil || more || len(page) > 0 {
			t.Errorf("%v, %t, %v", page, more, err)
		}
	})
}

// A redriven part begins anew, and somebody is sent for it.
func TestRedrive(t *testing.T) {
	in(t, func(w *world) {
		b := w.batch(1)
		k := w.part(b, 0, deadPart(time.Hour))
		p, err := w.reaper.Redrive(w.t.Context(), k, time.Now())
		if err != nil || p.State != batch.Pending || p.Attempts != 0 || !p.DeadAt.IsZero() || !p.Due.Equal(time.Now().Add(5*time.Minute)) {
			t.Errorf("%+v, %v", p, err)
		}
		if w.messages(k) != 1 {
			t.Errorf("%d messages", w.messages(k))
		}
		w.told(b, batch.EventRedriven)
		if _, err := w.reaper.Redrive(w.t.Context(), k, time.Now()); !errors.Is(err, batch.ErrAlive) {
			t.Errorf("again: %v", err)
		}
	})
}

// Its message can't be sent: it is redriven all the same, and due soon.
func TestRedriveWithoutAMessage(t *testing.T) {
	in(t, func(w *world) {
		b := w.batch(1)
		k := w.part(b, 0, deadPart(time.Hour))
		w.faults.Before("Queue.Send", 0, memory.Fail(nil))
		if _, err := w.reaper.Redrive(w.t.Context(), k, time.Now()); err != nil {
			t.Error(err)
		}
		after(5*time.Minute + time.Millisecond)
		w.did(reap.Report{Resent: 1})
	})
}

func TestRedriveRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*batch.Batch)
		part   func(*batch.Part)
		want   error
	}{
		"pending":   {nil, nil, batch.ErrAlive},
		"held":      {nil, func(p *batch.Part) { p.State, p.LeaseUntil = batch.Leased, time.Now().Add(time.Minute) }, batch.ErrAlive},
		"done":      {nil, func(p *batch.Part) { p.State = batch.Done }, batch.ErrOver},
		"sealed":    {nil, func(p *batch.Part) { p.State = batch.Sealed }, batch.ErrOver},
		"cancelled": {func(b *batch.Batch) { b.Ending = batch.Cancelled }, deadPart(time.Hour), batch.ErrStatus},
		"closed":    {func(b *batch.Batch) { b.Status = batch.Completed }, deadPart(time.Hour), batch.ErrStatus},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				b := w.batch(1)
				if c.change != nil {
					w.change(b, c.change)
				}
				k := w.part(b, 0, c.part)
				before := fmt.Sprint(w.look(k))
				if _, err := w.reaper.Redrive(w.t.Context(), k, time.Now()); !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				if got := fmt.Sprint(w.look(k)); got != before || w.messages(k) != 0 || len(w.events(b)) != 0 {
					t.Errorf("part %s\nwas %s", got, before)
				}
			})
		})
	}
	in(t, func(w *world) {
		b := w.batch(1)
		for _, k := range []batch.PartKey{{Tenant: acme, Batch: b.ID, N: 1}, {Tenant: "other", Batch: b.ID}} {
			if _, err := w.reaper.Redrive(w.t.Context(), k, time.Now()); !errors.Is(err, batch.ErrNotFound) {
				t.Errorf("%v: %v", k, err)
			}
		}
	})
}
