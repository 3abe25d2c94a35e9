package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// EndingsPorts are what the suite of batch.Endings needs: Batches makes the
// batches and reads them.
type EndingsPorts struct {
	Batches batch.Batches
	Endings batch.Endings
}

// RunEndings runs the suite of batch.Endings.
func RunEndings(t *testing.T, open func(T) EndingsPorts) {
	t.Helper()
	run(t, EndingsCases(), open)
}

// EndingsCases is the suite of batch.Endings.
func EndingsCases() []Case[EndingsPorts] {
	return append([]Case[EndingsPorts]{
		{"end/cancelled or expired before the end of planning and after", endEarly},
		{"end/completed", endCompleted},
		{"end/completed not before planning is over", endCompletedEarly},
		{"end/again is its own lost write, whenever", endAgain},
		{"end/a decided ending stays", endDecided},
		{"end/not a failed batch", endFailed},
		{"end/with what is no ending", endInvalid},
		{"end/one of many decides", endRace},
		{"unknown and foreign batches", endingsUnknown},
		{"a context that is over", endingsInterrupted},
	}, append(finalizeCases, advanceCases...)...)
}

var (
	endings = []batch.Status{batch.Completed, batch.Cancelled, batch.Expired}
	until   = at(2 * time.Minute)
)

// running is a batch in progress.
func running(t T, p EndingsPorts) batch.Batch {
	t.Helper()
	b := begin(t, p.Batches, fullBatch())
	return value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(time.Second)))(t, "start")
}

// ending is a batch in progress whose ending is decided.
func ending(t T, p EndingsPorts, how batch.Status) batch.Batch {
	t.Helper()
	b := running(t, p)
	return value(p.Endings.End(t.Context(), b.Tenant, b.ID, how, at(2*time.Second)))(t, "end")
}

// finalizing is a batch that tok assembles, until `until`.
func finalizing(t T, p EndingsPorts, how batch.Status, tok lease.Token) batch.Batch {
	t.Helper()
	b := ending(t, p, how)
	return value(p.Endings.Finalize(t.Context(), b.Tenant, b.ID, tok, until, at(0), at(3*time.Second)))(t, "finalize")
}

// closed is a batch that tok closed.
func closed(t T, p EndingsPorts, how batch.Status, tok lease.Token) batch.Batch {
	t.Helper()
	b := finalizing(t, p, how, tok)
	return value(p.Endings.Close(t.Context(), b.Tenant, b.ID, tok, result(), at(4*time.Second)))(t, "close")
}

// result is what a batch closes with.
func result() batch.Closed {
	return batch.Closed{
		Counts: batch.Counts{Total: 1 << 40, Completed: 1<<40 - 7, Failed: 7}, Usage: usage(),
		Troubles:     batch.Troubles{Lapses: 1 << 40, Steals: 3, Repeats: 132, Dead: 2},
		OutputFileID: "file-out", ErrorFileID: "file-err",
	}
}

// unchanged demands that b is stored as it is.
func unchanged(t T, p EndingsPorts, what string, b batch.Batch) {
	t.Helper()
	same(t, what, look(t, p.Batches, b), b)
}

func endEarly(t T, p EndingsPorts) {
	for _, how := range []batch.Status{batch.Cancelled, batch.Expired} {
		for _, b := range []batch.Batch{begin(t, p.Batches, fullBatch()), running(t, p)} {
			ends(t, p, b, how)
		}
	}
}

func ends(t T, p EndingsPorts, b batch.Batch, how batch.Status) {
	t.Helper()
	want := b
	want.Ending, want.EndingAt = how, at(time.Minute)
	want.Ver++
	got := value(p.Endings.End(t.Context(), b.Tenant, b.ID, how, at(time.Minute)))(t, "end")
	same(t, fmt.Sprintf("answer for a %s batch ended as %s", b.Status, how), got, want)
	unchanged(t, p, "stored", want)
}

func endCompleted(t T, p EndingsPorts) { ends(t, p, running(t, p), batch.Completed) }

func endCompletedEarly(t T, p EndingsPorts) {
	b := begin(t, p.Batches, fullBatch())
	refuses(t, "end", fault(p.Endings.End(t.Context(), b.Tenant, b.ID, batch.Completed, at(0))), batch.ErrStatus)
	unchanged(t, p, "stored", b)
}

func endAgain(t T, p EndingsPorts) {
	for _, how := range endings {
		for _, b := range []batch.Batch{ending(t, p, how), finalizing(t, p, how, token()), closed(t, p, how, token())} {
			got := value(p.Endings.End(t.Context(), b.Tenant, b.ID, how, at(time.Hour)))(t, "end again")
			same(t, "answer", got, b)
			unchanged(t, p, "stored", b)
		}
	}
}

func endDecided(t T, p EndingsPorts) {
	for _, how := range endings {
		for _, b := range []batch.Batch{ending(t, p, how), finalizing(t, p, how, token()), closed(t, p, how, token())} {
			for _, other := range endings {
				if other == how {
					continue
				}
				what := fmt.Sprintf("end a %s batch as %s that ends as %s", b.Status, other, how)
				refuses(t, what, fault(p.Endings.End(t.Context(), b.Tenant, b.ID, other, at(time.Hour))), batch.ErrStatus)
				unchanged(t, p, what, b)
			}
		}
	}
}

func endFailed(t T, p EndingsPorts) {
	b := begin(t, p.Batches, fullBatch())
	b = value(p.Batches.Refuse(t.Context(), b.Tenant, b.ID, reasons(1), at(0)))(t, "refuse")
	for _, how := range endings {
		refuses(t, "end as "+string(how), fault(p.Endings.End(t.Context(), b.Tenant, b.ID, how, at(0))), batch.ErrStatus)
		unchanged(t, p, "stored", b)
	}
}

func endInvalid(t T, p EndingsPorts) {
	b := running(t, p)
	for _, how := range []batch.Status{"", batch.Failed, batch.Finalizing, batch.Validating, "done"} {
		if _, err := p.Endings.End(t.Context(), b.Tenant, b.ID, how, at(0)); err == nil {
			t.Errorf("%q is taken for an ending", how)
		}
	}
	unchanged(t, p, "stored", b)
}

func endRace(t T, p EndingsPorts) {
	b := running(t, p)
	errs := race(racers, func(i int) error {
		return fault(p.Endings.End(t.Context(), b.Tenant, b.ID, endings[i%len(endings)], at(time.Duration(i)*time.Second)))
	})
	got := look(t, p.Batches, b)
	for i, err := range errs {
		switch how := endings[i%len(endings)]; {
		case how == got.Ending && err != nil:
			t.Errorf("the ending is %s, but a caller with it was refused: %v", got.Ending, err)
		case how != got.Ending:
			refuses(t, fmt.Sprintf("%s, when the ending is %s", how, got.Ending), err, batch.ErrStatus)
		}
	}
	if got.Ver != b.Ver+1 {
		t.Errorf("ver went from %d to %d in one decision", b.Ver, got.Ver)
	}
}

// attempts is each call of batch.Endings, about a batch.
func attempts(p EndingsPorts, tenant, id string, tok lease.Token) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"End": func(ctx context.Context) error { return fault(p.Endings.End(ctx, tenant, id, batch.Cancelled, at(0))) },
		"Finalize": func(ctx context.Context) error {
			return fault(p.Endings.Finalize(ctx, tenant, id, tok, until, at(time.Hour), at(0)))
		},
		"Hold": func(ctx context.Context) error { return p.Endings.Hold(ctx, tenant, id, tok, until, at(0)) },
		"Advance": func(ctx context.Context) error {
			return p.Endings.Advance(ctx, tenant, id, tok, progress(1), until, at(0))
		},
		"Close": func(ctx context.Context) error { return fault(p.Endings.Close(ctx, tenant, id, tok, result(), at(0))) },
	}
}

func endingsUnknown(t T, p EndingsPorts) {
	tok := token()
	b := finalizing(t, p, batch.Cancelled, tok)
	for name, do := range attempts(p, b.Tenant, "batch_none", tok) {
		refuses(t, name+" an unknown batch", do(t.Context()), batch.ErrNotFound)
	}
	foreign := tenant()
	for name, do := range attempts(p, foreign, b.ID, tok) {
		refuses(t, name+" another tenant's batch", do(t.Context()), batch.ErrNotFound)
	}
	refuses(t, "get after those", fault(p.Batches.Get(t.Context(), foreign, b.ID)), batch.ErrNotFound)
	unchanged(t, p, "after those", b)
}

func endingsInterrupted(t T, p EndingsPorts) {
	tok := token()
	held, open := finalizing(t, p, batch.Cancelled, tok), running(t, p)
	calls := attempts(p, held.Tenant, held.ID, tok)
	calls["End of one that runs"] = attempts(p, open.Tenant, open.ID, tok)["End"]
	interrupts(t, calls)
	unchanged(t, p, "finalizing", held)
	unchanged(t, p, "running", open)
}

// heldUntil demands that a call is refused because b is held.
func heldUntil(t T, what string, err error, b batch.Batch) {
	t.Helper()
	refuses(t, what, err, lease.ErrHeld)
	held, ok := errors.AsType[*batch.HeldError](err)
	if !ok {
		t.Fatalf("%s: %v is no *HeldError", what, err)
	}
	if !held.Until.Equal(stored(b.FinalizerUntil)) || held.Ver != b.Ver {
		t.Errorf("%s: held until %v at ver %d, want %v and %d", what, held.Until, held.Ver, stored(b.FinalizerUntil), b.Ver)
	}
}
