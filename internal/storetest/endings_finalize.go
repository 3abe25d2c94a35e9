package storetest

import (
	"fmt"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

var finalizeCases = []Case[EndingsPorts]{
	{"finalize/takes the right to assemble", finalizeTakes},
	{"finalize/again is the holder's own", finalizeAgain},
	{"finalize/not while another holds it", finalizeHeld},
	{"finalize/robs a holder that lapsed", finalizeRobs},
	{"finalize/not before an ending, not before planning is over, never again", finalizeNot},
	{"finalize/one of many takes it", finalizeRace},
	{"finalize/one of many robs it", robRace},
	{"hold/prolongs", holdProlongs},
	{"hold/only the holder's, only while finalizing", holdLost},
	{"close/makes the ending the status", closeEnds},
	{"close/without files", closeBare},
	{"close/again is its own lost write", closeAgain},
	{"close/only the finalizer's, only while finalizing", closeLost},
	{"close/one of finalizer and robber", closeRace},
}

// finalized gives b, whose ending is decided, as Finalize leaves it.
func finalized(b batch.Batch, tok lease.Token, until, now time.Time) batch.Batch {
	b.Status, b.FinalizingAt = batch.Finalizing, now
	return robbed(b, tok, until)
}

// robbed gives b, which is finalizing, as a robber leaves it.
func robbed(b batch.Batch, tok lease.Token, until time.Time) batch.Batch {
	b.Finalizer, b.FinalizerUntil = tok, until
	b.Ver++
	return b
}

func finalizeTakes(t T, p EndingsPorts) {
	for _, how := range endings {
		b, tok := ending(t, p, how), token()
		want := finalized(b, tok, until, at(time.Minute))
		got := value(p.Endings.Finalize(t.Context(), b.Tenant, b.ID, tok, until, at(0), at(time.Minute)))(t, "finalize")
		same(t, "answer", got, want)
		unchanged(t, p, "stored", want)
	}
}

// finalizeAgain: whether the second call prolongs is left open.
func finalizeAgain(t T, p EndingsPorts) {
	tok := token()
	b := finalizing(t, p, batch.Completed, tok)
	got := value(p.Endings.Finalize(t.Context(), b.Tenant, b.ID, tok, until, at(0), at(time.Hour)))(t, "finalize again")
	same(t, "answer", got, b, "Ver")
	same(t, "stored", look(t, p.Batches, b), b, "Ver")
}

func finalizeHeld(t T, p EndingsPorts) {
	b := finalizing(t, p, batch.Completed, token())
	for _, cut := range []time.Time{at(0), until.Add(-time.Millisecond), until} {
		what := fmt.Sprintf("finalize, cut %v before the lapse", until.Sub(cut))
		heldUntil(t, what, fault(p.Endings.Finalize(t.Context(), b.Tenant, b.ID, token(), at(time.Hour), cut, at(0))), b)
		unchanged(t, p, what, b)
	}
}

func finalizeRobs(t T, p EndingsPorts) {
	ctx := t.Context()
	loser, robber := token(), token()
	b := finalizing(t, p, batch.Completed, loser)
	want := robbed(b, robber, at(time.Hour))
	got := value(p.Endings.Finalize(ctx, b.Tenant, b.ID, robber, at(time.Hour), until.Add(time.Millisecond), at(3*time.Minute)))(t, "rob")
	same(t, "answer", got, want)
	unchanged(t, p, "stored", want)

	refuses(t, "hold by the robbed", p.Endings.Hold(ctx, b.Tenant, b.ID, loser, at(2*time.Hour), at(0)), lease.ErrLost)
	refuses(t, "close by the robbed", fault(p.Endings.Close(ctx, b.Tenant, b.ID, loser, result(), at(0))), lease.ErrLost)
	heldUntil(t, "finalize by the robbed", fault(p.Endings.Finalize(ctx, b.Tenant, b.ID, loser, at(2*time.Hour), until, at(0))), want)
	unchanged(t, p, "after the robbed one's calls", want)
}

func finalizeNot(t T, p EndingsPorts) {
	failed := begin(t, p.Batches, fullBatch())
	failed = value(p.Batches.Refuse(t.Context(), failed.Tenant, failed.ID, nil, at(0)))(t, "refuse")
	planning := begin(t, p.Batches, fullBatch())
	leaving := begin(t, p.Batches, fullBatch())
	leaving = value(p.Endings.End(t.Context(), leaving.Tenant, leaving.ID, batch.Cancelled, at(0)))(t, "end")
	for name, b := range map[string]batch.Batch{
		"failed": failed, "validating": planning, "validating and cancelled": leaving, "without an ending": running(t, p),
		"completed": closed(t, p, batch.Completed, token()), "cancelled": closed(t, p, batch.Cancelled, token()),
		"expired": closed(t, p, batch.Expired, token()),
	} {
		for _, tok := range []lease.Token{token(), b.Finalizer} {
			err := fault(p.Endings.Finalize(t.Context(), b.Tenant, b.ID, tok, at(time.Hour), at(24*time.Hour), at(0)))
			refuses(t, fmt.Sprintf("finalize a batch that is %s", name), err, batch.ErrStatus)
			unchanged(t, p, name, b)
		}
	}
}

func finalizeRace(t T, p EndingsPorts) {
	b := ending(t, p, batch.Completed)
	toks, errs := grabs(t, p, b, at(0))
	i := winner(t, errs, lease.ErrHeld)
	unchanged(t, p, "stored", finalized(b, toks[i], until.Add(time.Hour), at(time.Minute)))
}

func robRace(t T, p EndingsPorts) {
	b := finalizing(t, p, batch.Completed, token())
	toks, errs := grabs(t, p, b, until.Add(time.Second))
	i := winner(t, errs, lease.ErrHeld)
	unchanged(t, p, "stored", robbed(b, toks[i], until.Add(time.Hour)))
}

// grabs is many finalizers at once.
func grabs(t T, p EndingsPorts, b batch.Batch, cut time.Time) ([]lease.Token, []error) {
	toks := make([]lease.Token, racers)
	for i := range toks {
		toks[i] = token()
	}
	return toks, race(racers, func(i int) error {
		return fault(p.Endings.Finalize(t.Context(), b.Tenant, b.ID, toks[i], until.Add(time.Hour), cut, at(time.Minute)))
	})
}

func holdProlongs(t T, p EndingsPorts) {
	tok := token()
	b := finalizing(t, p, batch.Completed, tok)
	succeeds(t, "hold", p.Endings.Hold(t.Context(), b.Tenant, b.ID, tok, at(time.Hour), at(time.Minute)))
	unchanged(t, p, "stored", robbed(b, tok, at(time.Hour)))
}

func holdLost(t T, p EndingsPorts) {
	tok := token()
	for _, b := range []batch.Batch{finalizing(t, p, batch.Completed, token()), closed(t, p, batch.Completed, tok), ending(t, p, batch.Completed)} {
		refuses(t, "hold a batch that is "+string(b.Status), p.Endings.Hold(t.Context(), b.Tenant, b.ID, tok, at(time.Hour), at(0)), lease.ErrLost)
		unchanged(t, p, "stored", b)
	}
}

// closedAs gives b, which is finalizing, as Close leaves it.
func closedAs(b batch.Batch, c batch.Closed, now time.Time) batch.Batch {
	b.Status, b.Due = b.Ending, time.Time{}
	b.Counts, b.Usage, b.Troubles, b.OutputFileID, b.ErrorFileID = c.Counts, c.Usage, c.Troubles, c.OutputFileID, c.ErrorFileID
	switch b.Ending {
	case batch.Completed:
		b.CompletedAt = now
	case batch.Expired:
		b.ExpiredAt = now
	case batch.Cancelled:
		b.CancelledAt = now
	}
	b.Ver++
	return b
}

func closeEnds(t T, p EndingsPorts) {
	for _, how := range endings {
		tok := token()
		b := finalizing(t, p, how, tok)
		want := closedAs(b, result(), at(time.Hour))
		got := value(p.Endings.Close(t.Context(), b.Tenant, b.ID, tok, result(), at(time.Hour)))(t, "close")
		same(t, "answer", got, want)
		unchanged(t, p, "stored", want)
	}
}

func closeBare(t T, p EndingsPorts) {
	tok := token()
	b := finalizing(t, p, batch.Cancelled, tok)
	want := closedAs(b, batch.Closed{}, at(time.Hour))
	same(t, "answer", value(p.Endings.Close(t.Context(), b.Tenant, b.ID, tok, batch.Closed{}, at(time.Hour)))(t, "close"), want)
	unchanged(t, p, "stored", want)
}

func closeAgain(t T, p EndingsPorts) {
	for _, how := range endings {
		tok := token()
		b := closed(t, p, how, tok)
		for _, c := range []batch.Closed{result(), {}} {
			got := value(p.Endings.Close(t.Context(), b.Tenant, b.ID, tok, c, at(24*time.Hour)))(t, "close again")
			same(t, "answer", got, b)
			unchanged(t, p, "stored", b)
		}
	}
}

func closeLost(t T, p EndingsPorts) {
	tok := token()
	for _, b := range []batch.Batch{
		finalizing(t, p, batch.Completed, token()), closed(t, p, batch.Completed, token()), closed(t, p, batch.Expired, token()),
		ending(t, p, batch.Completed), running(t, p), begin(t, p.Batches, fullBatch()),
	} {
		err := fault(p.Endings.Close(t.Context(), b.Tenant, b.ID, tok, result(), at(time.Hour)))
		refuses(t, "close a batch that is "+string(b.Status), err, lease.ErrLost)
		unchanged(t, p, "stored", b)
	}
}

// closeRace: the finalizer is late but alive, and closes while others rob it.
// Either it closed, and the robbers come too late; or one of them holds the
// batch, and the close is lost.
func closeRace(t T, p EndingsPorts) {
	tok := token()
	b := finalizing(t, p, batch.Completed, tok)
	errs := race(racers, func(i int) error {
		if i == racers/2 {
			return fault(p.Endings.Close(t.Context(), b.Tenant, b.ID, tok, result(), at(time.Hour)))
		}
		return fault(p.Endings.Finalize(t.Context(), b.Tenant, b.ID, token(), until.Add(time.Hour), until.Add(time.Second), at(time.Hour)))
	})
	got := look(t, p.Batches, b)
	closing, robbers := errs[racers/2], 0
	for i, err := range errs {
		if i != racers/2 && err == nil {
			robbers++
		}
	}
	switch {
	case closing == nil && robbers == 0:
		same(t, "closed", got, closedAs(b, result(), at(time.Hour)))
	case closing != nil && robbers == 1:
		refuses(t, "the late close", closing, lease.ErrLost)
		same(t, "robbed", got, robbed(b, got.Finalizer, until.Add(time.Hour)))
	default:
		t.Errorf("the close: %v; %d robbers", closing, robbers)
	}
}
