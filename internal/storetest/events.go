package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
)

// EventsPorts are what the suite of batch.Events needs: Batches and Parts keep
// items under the same keys.
type EventsPorts struct {
	Events  batch.Events
	Batches batch.Batches
	Parts   batch.Parts
}

// RunEvents runs the suite of batch.Events.
func RunEvents(t *testing.T, open func(T) EventsPorts) {
	t.Helper()
	run(t, EventsCases(), open)
}

// EventsCases is the suite of batch.Events.
func EventsCases() []Case[EventsPorts] {
	return []Case[EventsPorts]{
		{"record/an event comes back whole", recordWhole},
		{"record/one that was told before stays as it was", recordAgain},
		{"record/one of many wins, and all succeed", recordRace},
		{"record/out of bounds", recordBounds},
		{"record all/each once, however many", recordMany},
		{"list/by time, then part, then version", listEvents},
		{"list/page by page", listEventPages},
		{"list/only this batch's events, and nothing but events", listEventsOwn},
		{"a context that is over", eventsInterrupted},
	}
}

func recordMany(t T, p EventsPorts) {
	var want []batch.Event
	first := anEvent()
	for n := range 60 {
		e := first
		e.Part = n
		want = append(want, e)
	}
	succeeds(t, "record none", p.Events.RecordAll(t.Context(), nil))
	succeeds(t, "record one", p.Events.Record(t.Context(), want[7]))
	for range 2 {
		succeeds(t, "record all, one of them twice", p.Events.RecordAll(t.Context(), append(want[:len(want):len(want)], want[3])))
	}
	eventsAre(t, p, first.Tenant, first.Batch, want...)
	bad := first
	bad.Kind = ""
	if err := p.Events.RecordAll(t.Context(), []batch.Event{bad}); err == nil {
		t.Errorf("an event without a kind was recorded")
	}
}

// anEvent is as full as events get.
func anEvent() batch.Event {
	k := key(19_999)
	return batch.Event{
		Tenant: k.Tenant, Batch: k.Batch, At: at(0), Part: k.N, Ver: 41, Kind: batch.EventLeaseExpired,
		Seen: at(time.Minute), Owner: token(), Attempt: 3, Reason: awkward + strings.Repeat("x", 1000-len(awkward)),
	}
}

func record(t T, p EventsPorts, events ...batch.Event) {
	t.Helper()
	for _, e := range events {
		succeeds(t, "record", p.Events.Record(t.Context(), e))
	}
}

// eventsAre demands that a batch's events come to be want.
func eventsAre(t T, p EventsPorts, tenant, id string, want ...batch.Event) {
	t.Helper()
	var page []batch.Event
	eventually(t, fmt.Sprintf("%d events", len(want)), func() bool {
		var more bool
		var err error
		page, more, err = p.Events.List(t.Context(), tenant, id, "", batch.MaxEvents)
		succeeds(t, "list", err)
		return len(page) == len(want) && !more
	})
	for i := range want {
		same(t, fmt.Sprintf("event %d", i), page[i], want[i])
		if page[i].ID() != want[i].ID() {
			t.Errorf("event %d has id %q, want %q", i, page[i].ID(), want[i].ID())
		}
	}
}

func recordWhole(t T, p EventsPorts) {
	full := anEvent()
	bare := batch.Event{Tenant: full.Tenant, Batch: full.Batch, At: at(time.Hour), Part: batch.NoPart, Kind: "x"}
	record(t, p, full, bare)
	eventsAre(t, p, full.Tenant, full.Batch, full, bare)
}

func recordAgain(t T, p EventsPorts) {
	e := anEvent()
	record(t, p, e)
	again := e
	again.Owner, again.Attempt, again.Reason, again.Seen = "another", 9, "another", at(time.Hour)
	record(t, p, e, again)
	eventsAre(t, p, e.Tenant, e.Batch, e)
}

func recordRace(t T, p EventsPorts) {
	e := anEvent()
	e.Reason = ""
	for _, err := range race(racers, func(int) error { return p.Events.Record(t.Context(), e) }) {
		succeeds(t, "record", err)
	}
	eventsAre(t, p, e.Tenant, e.Batch, e)
}

func recordBounds(t T, p EventsPorts) {
	for what, change := range map[string]func(*batch.Event){
		"no batch":          func(e *batch.Event) { e.Batch = "" },
		"no tenant":         func(e *batch.Event) { e.Tenant = "" },
		"no time":           func(e *batch.Event) { e.At = time.Time{} },
		"part -2":           func(e *batch.Event) { e.Part = -2 },
		"version -1":        func(e *batch.Event) { e.Ver = -1 },
		"no kind":           func(e *batch.Event) { e.Kind = "" },
		"kind with '#'":     func(e *batch.Event) { e.Kind = "a#b" },
		"kind in capitals":  func(e *batch.Event) { e.Kind = "Dead" },
		"reason of 1,001":   func(e *batch.Event) { e.Reason = strings.Repeat("x", 1001) },
		"reason of a batch": func(e *batch.Event) { e.Reason = strings.Repeat("x", 400<<10) },
	} {
		e := anEvent()
		change(&e)
		if err := p.Events.Record(t.Context(), e); err == nil {
			t.Errorf("an event with %s is recorded", what)
		}
		e = anEvent()
		eventsAre(t, p, e.Tenant, e.Batch)
	}
	for _, limit := range []int{0, -1, batch.MaxEvents + 1} {
		if _, _, err := p.Events.List(t.Context(), tenant(), "batch_1", "", limit); err == nil {
			t.Errorf("limit %d is taken", limit)
		}
	}
}

// someEvents are events of one batch in the order in which they are listed.
func someEvents() (events []batch.Event) {
	e := anEvent()
	e.Owner, e.Reason = "", ""
	for _, ms := range []int{-1_500_000_000_000, 0, 1} { // decades apart, and next to each other
		for _, part := range []int{batch.NoPart, 0, 9, 10, 19_999} {
			for _, ver := range []int64{2, 10} {
				for _, kind := range []batch.EventKind{batch.EventClaimed, batch.EventStolen} {
					e.At, e.Part, e.Ver, e.Kind = at(time.Duration(ms)*time.Millisecond), part, ver, kind
					events = append(events, e)
				}
			}
		}
	}
	return events
}

func listEvents(t T, p EventsPorts) {
	want := someEvents()
	for i := range want {
		record(t, p, want[(i*17)%len(want)])
	}
	eventsAre(t, p, want[0].Tenant, want[0].Batch, want...)
}

func listEventPages(t T, p EventsPorts) {
	want := someEvents()
	record(t, p, want...)
	tenant, id := want[0].Tenant, want[0].Batch
	eventsAre(t, p, tenant, id, want...)
	for _, limit := range []int{1, 7, len(want) - 1, len(want), len(want) + 1} {
		var got []batch.Event
		for after, more := "", true; more; {
			page, m, err := p.Events.List(t.Context(), tenant, id, after, limit)
			succeeds(t, "list", err)
			if got, more = append(got, page...), m; m && len(page) != limit {
				t.Fatalf("a page of %d, and more", len(page))
			}
			if len(page) > 0 {
				after = page[len(page)-1].ID()
			}
		}
		if len(got) != len(want) {
			t.Errorf("by %d: %d events of %d", limit, len(got), len(want))
		}
	}
	// A cursor is a place, whether or not an event is there.
	e := want[20]
	e.Kind = "a"
	page, more, err := p.Events.List(t.Context(), tenant, id, e.ID(), 1)
	succeeds(t, "list", err)
	if len(page) != 1 || !more || page[0].ID() != want[20].ID() {
		t.Errorf("after %q: %+v, more %v", e.ID(), page, more)
	}
	page, more, err = p.Events.List(t.Context(), tenant, id, want[len(want)-1].ID(), 1)
	if succeeds(t, "list", err); len(page) != 0 || more {
		t.Errorf("after the last one: %+v, more %v", page, more)
	}
}

func listEventsOwn(t T, p EventsPorts) {
	b := begin(t, p.Batches, fullBatch())
	insert(t, p.Parts, fullPart(batch.PartKey{Tenant: b.Tenant, Batch: b.ID}))
	mine, other, foreign := anEvent(), anEvent(), anEvent()
	mine.Tenant, mine.Batch = b.Tenant, b.ID
	other.Tenant, other.Batch = b.Tenant, b.ID+"x"
	foreign.Batch = b.ID
	record(t, p, mine, other, foreign)
	eventsAre(t, p, b.Tenant, b.ID, mine)
	same(t, "batch", look(t, p.Batches, b), b)
	if parts, _ := all(t, p.Parts, batch.PartKey{Tenant: b.Tenant, Batch: b.ID}); len(parts) != 1 {
		t.Errorf("%d parts", len(parts))
	}
	eventsAre(t, p, b.Tenant, "batch_none")
}

func eventsInterrupted(t T, p EventsPorts) {
	e := anEvent()
	interrupts(t, map[string]func(context.Context) error{
		"Record": func(ctx context.Context) error { return p.Events.Record(ctx, e) },
		"List": func(ctx context.Context) error {
			_, _, err := p.Events.List(ctx, e.Tenant, e.Batch, "", 1)
			return err
		},
	})
	eventsAre(t, p, e.Tenant, e.Batch)
}
