package storetest

import (
	"fmt"
	"time"

	"holdfast/internal/batch"
)

var startCases = []Case[BatchesPorts]{
	{"start/records what planning found", startRecords},
	{"start/without a model, parts or lines", startBare},
	{"start/again with equal numbers is its own lost write", startAgain},
	{"start/again with other numbers is refused", startOther},
	{"start/not from any later status", startLate},
	{"start/keeps an ending that was decided before", startEnding},
	{"refuse/records the reasons", refuseRecords},
	{"refuse/again is its own lost write", refuseAgain},
	{"refuse/not from any later status", refuseLate},
	{"start or refuse/one of many wins", startRace},
	{"overrun/counts, and changes nothing else", overrunCounts},
	{"overrun/each of many counts", overrunRace},
	{"overrun/not from any later status", overrunLate},
}

var numbers = batch.Started{Parts: 20_000, Lines: 10_000_000, Model: awkward}

// started gives b, which is validating, as Start leaves it.
func started(b batch.Batch, s batch.Started, now time.Time) batch.Batch {
	b.Status, b.InProgressAt = batch.InProgress, now
	b.Parts, b.Lines, b.Model = s.Parts, s.Lines, s.Model
	b.Ver++
	return b
}

func startRecords(t T, p BatchesPorts) {
	b := begin(t, p.Batches, fullBatch())
	want := started(b, numbers, at(time.Second))
	got := value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(time.Second)))(t, "start")
	same(t, "answer", got, want)
	same(t, "stored", look(t, p.Batches, b), want)
}

func startBare(t T, p BatchesPorts) {
	b := begin(t, p.Batches, bareBatch())
	want := started(b, batch.Started{}, at(0))
	same(t, "answer", value(p.Batches.Start(t.Context(), b.Tenant, b.ID, batch.Started{}, at(0)))(t, "start"), want)
	same(t, "stored", look(t, p.Batches, b), want)
}

func startAgain(t T, p BatchesPorts) {
	b := begin(t, p.Batches, fullBatch())
	first := value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(0)))(t, "start")
	again := value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(time.Hour)))(t, "start again")
	same(t, "answer", again, first)
	same(t, "stored", look(t, p.Batches, b), first)
}

func startOther(t T, p BatchesPorts) {
	b := begin(t, p.Batches, fullBatch())
	first := value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(0)))(t, "start")
	for _, s := range []batch.Started{
		{Parts: numbers.Parts + 1, Lines: numbers.Lines, Model: numbers.Model},
		{Parts: numbers.Parts, Lines: numbers.Lines + 1, Model: numbers.Model},
		{Parts: numbers.Parts, Lines: numbers.Lines, Model: "another"},
		{Parts: numbers.Parts, Lines: numbers.Lines},
		{},
	} {
		refuses(t, fmt.Sprintf("start with %+v", s), fault(p.Batches.Start(t.Context(), b.Tenant, b.ID, s, at(0))), batch.ErrStatus)
		same(t, "stored", look(t, p.Batches, b), first)
	}
}

func startLate(t T, p BatchesPorts) {
	for name, b := range later(t, p) {
		s := batch.Started{Parts: b.Parts, Lines: b.Lines, Model: b.Model}
		refuses(t, "start a batch that is "+name, fault(p.Batches.Start(t.Context(), b.Tenant, b.ID, s, at(0))), batch.ErrStatus)
		same(t, name, look(t, p.Batches, b), b)
	}
}

// later is a batch in each status after in_progress.
func later(t T, p BatchesPorts) map[string]batch.Batch {
	t.Helper()
	e := EndingsPorts(p)
	failed := begin(t, p.Batches, fullBatch())
	failed = value(p.Batches.Refuse(t.Context(), failed.Tenant, failed.ID, reasons(1), at(0)))(t, "refuse")
	return map[string]batch.Batch{
		"failed":     failed,
		"finalizing": finalizing(t, e, batch.Cancelled, token()),
		"completed":  closed(t, e, batch.Completed, token()),
		"cancelled":  closed(t, e, batch.Cancelled, token()),
		"expired":    closed(t, e, batch.Expired, token()),
	}
}

func startEnding(t T, p BatchesPorts) {
	b := begin(t, p.Batches, fullBatch())
	b = value(p.Endings.End(t.Context(), b.Tenant, b.ID, batch.Cancelled, at(0)))(t, "end")
	want := started(b, numbers, at(time.Second))
	same(t, "answer", value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(time.Second)))(t, "start"), want)
	same(t, "stored", look(t, p.Batches, b), want)
}

func refuseRecords(t T, p BatchesPorts) {
	for _, n := range []int{0, 1, 100} {
		b := begin(t, p.Batches, fullBatch())
		want := b
		want.Status, want.FailedAt, want.Errors, want.Due = batch.Failed, at(time.Second), reasons(n), time.Time{}
		want.Ver++
		got := value(p.Batches.Refuse(t.Context(), b.Tenant, b.ID, reasons(n), at(time.Second)))(t, "refuse")
		same(t, fmt.Sprintf("answer with %d reasons", n), got, want)
		same(t, fmt.Sprintf("stored with %d reasons", n), look(t, p.Batches, b), want)
	}
}

func refuseAgain(t T, p BatchesPorts) {
	b := begin(t, p.Batches, fullBatch())
	first := value(p.Batches.Refuse(t.Context(), b.Tenant, b.ID, reasons(3), at(0)))(t, "refuse")
	again := value(p.Batches.Refuse(t.Context(), b.Tenant, b.ID, reasons(1), at(time.Hour)))(t, "refuse again")
	same(t, "answer", again, first)
	same(t, "stored", look(t, p.Batches, b), first)
}

func refuseLate(t T, p BatchesPorts) {
	b := begin(t, p.Batches, fullBatch())
	b = value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(0)))(t, "start")
	all := later(t, p)
	delete(all, "failed")
	all["in_progress"] = b
	for name, b := range all {
		refuses(t, "refuse a batch that is "+name, fault(p.Batches.Refuse(t.Context(), b.Tenant, b.ID, reasons(1), at(0))), batch.ErrStatus)
		same(t, name, look(t, p.Batches, b), b)
	}
}

// startRace: planners that found the same start the batch together; those that
// want it refused come too late, or the other way round.
func startRace(t T, p BatchesPorts) {
	b := begin(t, p.Batches, fullBatch())
	errs := race(racers, func(i int) error {
		if i%2 == 0 {
			return fault(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(0)))
		}
		return fault(p.Batches.Refuse(t.Context(), b.Tenant, b.ID, reasons(1), at(0)))
	})
	got := look(t, p.Batches, b)
	for i, err := range errs {
		if won := (i%2 == 0) == (got.Status == batch.InProgress); won && err != nil {
			t.Errorf("the batch is %s, but caller %d was refused: %v", got.Status, i, err)
		} else if !won {
			refuses(t, fmt.Sprintf("caller %d of a batch that is %s", i, got.Status), err, batch.ErrStatus)
		}
	}
	if got.Ver != b.Ver+1 {
		t.Errorf("ver went from %d to %d in one transition", b.Ver, got.Ver)
	}
}

func overrunCounts(t T, p BatchesPorts) {
	b := begin(t, p.Batches, fullBatch())
	for n := range 3 {
		b.Overruns++
		b.Ver++
		got := value(p.Batches.Overrun(t.Context(), b.Tenant, b.ID, at(time.Duration(n)*time.Hour)))(t, "overrun")
		same(t, "answer", got, b)
		same(t, "stored", look(t, p.Batches, b), b)
	}
	want := started(b, numbers, at(0))
	same(t, "started", value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(0)))(t, "start"), want)
}

func overrunRace(t T, p BatchesPorts) {
	b := begin(t, p.Batches, fullBatch())
	for _, err := range race(racers, func(int) error { return fault(p.Batches.Overrun(t.Context(), b.Tenant, b.ID, at(0))) }) {
		succeeds(t, "overrun", err)
	}
	if got := look(t, p.Batches, b); got.Overruns != racers {
		t.Errorf("%d counted of %d", got.Overruns, racers)
	}
}

func overrunLate(t T, p BatchesPorts) {
	b := begin(t, p.Batches, fullBatch())
	all := later(t, p)
	all["in_progress"] = value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(0)))(t, "start")
	for name, b := range all {
		refuses(t, "overrun of a batch that is "+name, fault(p.Batches.Overrun(t.Context(), b.Tenant, b.ID, at(0))), batch.ErrStatus)
		same(t, name, look(t, p.Batches, b), b)
	}
}
