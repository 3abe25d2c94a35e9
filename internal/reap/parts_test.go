package reap_test

import (
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/reap"
)

// A worker goes without a word: its part is pending again, its message sent, and
// if nobody comes with that, sent again, less often each time.
func TestLapsedPart(t *testing.T) {
	in(t, func(w *world) {
		b := w.batch(1)
		k := w.part(b, 0, lapsed(1))
		seen := w.look(k)
		w.did(reap.Report{Reaped: 1})
		p := w.look(k)
		if p.State != batch.Pending || p.Owner != "" || p.Lapses != 1 || p.Attempts != 1 || p.Ver != seen.Ver+1 || !p.Due.Equal(time.Now().Add(5*time.Minute)) {
			t.Errorf("reaped: %+v", p)
		}
		if got := w.truth.Queue.Messages(); len(got) != 1 || got[0].Message != batch.MessageOf(seen) {
			t.Errorf("messages %+v", got)
		}
		all := w.truth.Table.EventsOf(b.Tenant, b.ID)
		if len(all) != 1 || all[0].Kind != batch.EventLeaseExpired || all[0].Owner != seen.Owner || all[0].Attempt != 1 ||
			!all[0].At.Equal(seen.LeaseUntil) || all[0].Ver != p.Ver {
			t.Errorf("events %+v", all)
		}
		if w.metrics[batch.MetricLeaseExpired] != 1 || w.metrics[batch.MetricReaped] != 1 {
			t.Errorf("metrics %v", w.metrics)
		}
		w.take()
		w.idle()
		for _, wait := range []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute} {
			after(wait - time.Second)
			if rep := w.round(); rep.Resent != 0 {
				t.Errorf("sent again within %v", wait)
			}
			after(time.Second + time.Millisecond)
			if rep := w.round(); rep.Resent != 1 || len(w.take()) != 1 {
				t.Errorf("not sent again after %v: %+v", wait, rep)
			}
		}
		w.told(b, batch.EventLeaseExpired, batch.EventResent, batch.EventResent, batch.EventResent, batch.EventResent)
	})
}

// A holder is believed for as long as two clocks may differ, and heartbeats, which
// don't move the index, keep it.
func TestLiveHolderIsLeftAlone(t *testing.T) {
	in(t, func(w *world) {
		b := w.batch(2)
		for n, until := range []time.Duration{-5 * time.Second, time.Minute} {
			w.part(b, n, func(p *batch.Part) {
				lapsed(1)(p)
				p.LeaseUntil = time.Now().Add(until)
			})
		}
		w.idle()
		after(time.Millisecond)
		w.did(reap.Report{Reaped: 1})
	})
}

// Rows of the index that are old: nothing happens.
func TestOldRows(t *testing.T) {
	in(t, func(w *world) {
		b := w.batch(4)
		past := func(state batch.State) func(*batch.Part) {
			return func(p *batch.Part) {
				p.State = state
				p.Due = time.Now().Add(-time.Hour)
			}
		}
		w.part(b, 0, past(batch.Done))
		w.part(b, 1, past(batch.Sealed))
		w.change(b, func(b *batch.Batch) { b.Status, b.Due = batch.Completed, time.Now().Add(-time.Hour) })
		w.idle()
		// Reads come after the index: each part was claimed in between.
		b = w.batch(1)
		k := w.part(b, 0, past(batch.Pending))
		stale := w.look(k)
		w.faults.After("Reaps.Due", 0, aside(func() {
			p := stale
			p.State, p.Owner, p.LeaseUntil, p.Ver = batch.Leased, "worker", time.Now().Add(time.Minute), 6
			w.truth.Table.SeedPart(p)
		}))
		w.idle()
		w.told(b)
	})
}

// Out of attempts: dead, unless a line is suspected, which the next claim deals
// with.
func TestExhaustedPart(t *testing.T) {
	for name, c := range map[string]struct {
		part func(*batch.Part)
		want reap.Report
		is   batch.State
		told []batch.EventKind
	}{
		"lapsed":            {lapsed(3), reap.Report{Dead: 1}, batch.Dead, []batch.EventKind{batch.EventLeaseExpired, batch.EventDead}},
		"lapsed, a suspect": {func(p *batch.Part) { lapsed(3)(p); p.Suspect = batch.Suspect{Line: 4, Strikes: 1} }, reap.Report{Reaped: 1}, batch.Pending, []batch.EventKind{batch.EventLeaseExpired}},
		"lapsed, one left":  {lapsed(2), reap.Report{Reaped: 1}, batch.Pending, []batch.EventKind{batch.EventLeaseExpired}},
		"pending":           {func(p *batch.Part) { p.Attempts, p.Due = 3, time.Now() }, reap.Report{Dead: 1}, batch.Dead, []batch.EventKind{batch.EventDead}},
		"pending, a suspect": {func(p *batch.Part) { p.Attempts, p.Due, p.Suspect = 9, time.Now(), batch.Suspect{Strikes: 2} },
			reap.Report{Resent: 1}, batch.Pending, []batch.EventKind{batch.EventResent}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				b := w.batch(1)
				k := w.part(b, 0, c.part)
				before := w.look(k)
				after(time.Millisecond)
				w.did(c.want)
				p := w.look(k)
				if p.State != c.is {
					t.Errorf("it is %s", p.State)
				}
				w.told(b, c.told...)
				if c.is != batch.Dead {
					return
				}
				if !p.DeadAt.Equal(time.Now()) || !p.Due.Equal(time.Now().Add(time.Hour)) || w.messages(k) != 0 || w.metrics[batch.MetricDeadParts] != 1 {
					t.Errorf("dead: %+v, %d messages, metrics %v", p, w.messages(k), w.metrics)
				}
				if lapse := before.State == batch.Leased; (p.Lapses == 1) != lapse || (w.metrics[batch.MetricLeaseExpired] == 1) != lapse {
					t.Errorf("%d lapses, metrics %v", p.Lapses, w.metrics)
				}
			})
		})
	}
}

// Nobody redrives: the part is sealed, its workflow told, and a message goes ahead
// that would tell it if we didn't.
func TestDeadPartPastItsGrace(t *testing.T) {
	in(t, func(w *world) {
		b := w.batch(1)
		k := w.part(b, 0, func(p *batch.Part) {
			p.State, p.Attempts, p.DeadAt, p.Due = batch.Dead, 3, time.Now(), time.Now().Add(time.Minute)
		})
		w.idle()
		after(time.Minute + time.Millisecond)
		w.did(reap.Report{Sealed: 1})
		p := w.look(k)
		if p.State != batch.Sealed || !p.Due.IsZero() {
			t.Errorf("part %+v", p)
		}
		if got := w.truth.Workflow.Reports(); !slices.Equal(got, []string{p.TaskToken}) {
			t.Errorf("reports %q", got)
		}
		if w.messages(k) != 1 || len(w.take()) != 0 {
			t.Error("the message that goes ahead is not held back")
		}
		w.told(b, batch.EventSealed)
		w.idle()
	})
}

// A message is overdue: it is sent again, at first after two hours, then less
// often.
func TestOverdueMessage(t *testing.T) {
	in(t, func(w *world) {
		b := w.batch(1)
		k := w.part(b, 0, nil)
		began := time.Now()
		var sent []time.Duration
		for time.Since(began) < 31*time.Hour {
			after(time.Minute)
			w.change(w.see(b), func(b *batch.Batch) { b.Due = time.Now().Add(time.Hour) }) // this is about the part
			if rep := w.round(); rep.Resent > 0 {
				sent = append(sent, time.Since(began).Truncate(time.Hour))
				if got := w.take(); !slices.Equal(got, []batch.PartKey{k}) {
					t.Errorf("messages %v", got)
				}
			}
		}
		if want := []time.Duration{2 * time.Hour, 6 * time.Hour, 14 * time.Hour, 22 * time.Hour, 30 * time.Hour}; !slices.Equal(sent, want) {
			t.Errorf("sent after %v, want %v", sent, want)
		}
		if p := w.look(k); p.Resends != len(sent) || p.Lapses != 0 {
			t.Errorf("part %+v", p)
		}
	})
}

// What is of no use isn't sent: a part whose batch ends early, or isn't planned
// yet. One that a planning left behind is closed.
func TestPartsOfOtherBatches(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*batch.Batch)
		part   func(*batch.Part)
		want   reap.Report
		is     batch.State
	}{
		"cancelled":            {func(b *batch.Batch) { b.Ending = batch.Cancelled }, nil, reap.Report{}, batch.Pending},
		"cancelled, lapsed":    {func(b *batch.Batch) { b.Ending = batch.Cancelled }, lapsed(1), reap.Report{Reaped: 1}, batch.Pending},
		"cancelled, its third": {func(b *batch.Batch) { b.Ending = batch.Cancelled }, lapsed(3), reap.Report{Reaped: 1}, batch.Pending},
		"finalizing":           {func(b *batch.Batch) { b.Status, b.Ending = batch.Finalizing, batch.Expired }, nil, reap.Report{}, batch.Pending},
		"validating":           {func(b *batch.Batch) { b.Status = batch.Validating }, nil, reap.Report{}, batch.Pending},
		"refused":              {func(b *batch.Batch) { b.Status = batch.Failed }, nil, reap.Report{Sealed: 1}, batch.Sealed},
		"closed, lapsed":       {func(b *batch.Batch) { b.Status, b.Ending = batch.Expired, batch.Expired }, lapsed(1), reap.Report{Sealed: 1}, batch.Sealed},
		"another tenant's":     {func(b *batch.Batch) { b.Tenant = "other" }, nil, reap.Report{Sealed: 1}, batch.Sealed},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				b := w.batch(1)
				mine := b
				mine.Tenant = "acme2" // no such batch, unless it is the seeded one's
				changed := b
				c.change(&changed)
				if changed.Tenant != b.Tenant {
					b = mine
				} else {
					w.truth.Table.SeedBatch(changed)
				}
				k := w.part(b, 0, func(p *batch.Part) {
					p.Due = time.Now().Add(-time.Minute)
					if c.part != nil {
						c.part(p)
					}
				})
				w.did(c.want)
				if p := w.look(k); p.State != c.is || w.messages(k) != 0 {
					t.Errorf("it is %s, with %d messages", p.State, w.messages(k))
				}
				w.idle() // and it isn't found by the minute
			})
		})
	}
}

// A wide batch takes longer than a message may. Its workflow has come to so many
// parts; the others have no message yet, and get none from here.
func TestWideBatchIsNotFlooded(t *testing.T) {
	in(t, func(w *world) {
		const parts, over = 2000, 300
		b := w.batch(parts)
		for n := range parts {
			w.part(b, n, func(p *batch.Part) {
				p.Due = time.Now().Add(-time.Second)
				switch {
				case n < over:
					p.State, p.Due = batch.Done, time.Time{}
				case n == over:
					p.TaskToken, p.Lapses = "seen before", 1
				default:
					p.TaskToken = ""
				}
			})
		}
		w.did(reap.Report{Resent: 80}) // those that wait: 300 to 379
		seen := w.take()
		slices.SortFunc(seen, func(a, b batch.PartKey) int { return a.N - b.N })
		if len(seen) != 80 || seen[0].N != over || seen[79].N != over+79 {
			t.Errorf("%d messages: %v", len(seen), seen)
		}
		for range 60 {
			after(time.Minute)
			w.change(w.see(b), func(b *batch.Batch) { b.Due = time.Now().Add(time.Hour) })
			if rep := w.round(); rep.Resent > 1 {
				t.Fatalf("%+v", rep)
			}
		}
		if n := w.faults.Count("Parts.All"); n > 1 {
			t.Errorf("all parts were read %d times", n)
		}
	})
}

// Nobody sends a part's first message: its execution fell, and no other would run.
func TestWideBatchWithoutExecution(t *testing.T) {
	in(t, func(w *world) {
		const parts = 200
		b := w.batch(parts)
		w.truth.Workflow.Kill(b.ID)
		for n := range parts {
			w.part(b, n, func(p *batch.Part) { p.TaskToken, p.Due = "", time.Now().Add(-time.Second) })
		}
		w.did(reap.Report{Resent: parts})
		if got := w.take(); len(got) != parts {
			t.Errorf("%d messages", len(got))
		}
	})
}

// What is due and isn't ours is counted and left.
func TestOtherKindsAreLeft(t *testing.T) {
	in(t, func(w *world) {
		f := batch.File{Tenant: acme, ID: "file-1", ExpiresAt: time.Now().Add(-time.Hour)}
		if err := w.truth.Table.Files.Put(w.t.Context(), f); err != nil {
			t.Fatal(err)
		}
		w.did(reap.Report{Left: 1})
		if rep := (reap.Report{Left: 1, Failed: 1, Overdue: 1, More: true}); rep.Done() != 0 {
			t.Errorf("done %d", rep.Done())
		}
	})
}

func TestOptions(t *testing.T) {
	if _, err := reap.New(reap.Ports{}, nil); err == nil {
		t.Error("without ports")
	}
	in(t, func(w *world) {
		p := w.reaper.Ports
		for name, o := range map[string]reap.Options{
			"negative time": {Skew: -1}, "negative number": {Parallel: -1}, "a page too large": {Page: batch.MaxDue + 1},
			"resend above overdue": {Overdue: time.Minute, Resend: time.Hour},
		} {
			if _, err := reap.New(p, &o); err == nil {
				t.Errorf("%s: taken", name)
			}
		}
		if _, err := reap.New(p, &reap.Options{Overdue: time.Second}); err != nil {
			t.Errorf("a short overdue: %v", err)
		}
		p.Letters = nil
		r, err := reap.New(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := r.Round(w.t.Context(), reap.Scope{}, time.Now()); err != nil || rep != (reap.Report{}) {
			t.Errorf("without dead letters: %+v, %v", rep, err)
		}
	})
}
