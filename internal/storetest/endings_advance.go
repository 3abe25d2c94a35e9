package storetest

import (
	"fmt"
	"strings"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

var advanceCases = []Case[EndingsPorts]{
	{"advance/records progress and prolongs", advanceRecords},
	{"advance/again is its own lost write", advanceAgain},
	{"advance/only by one step", advanceSteps},
	{"advance/only the finalizer's, only while finalizing", advanceLost},
	{"advance/goes to whoever robs", advanceInherited},
	{"advance/stays when the batch is closed", advanceStays},
}

// longID is as long and as odd as S3's upload ids come.
var longID = strings.Repeat("aB3._-~", 30)

// progress is the one of a step, with everything that progress can have.
func progress(step int64) batch.Progress {
	sum := strings.Repeat("0123456789abcdef", 4)
	file := func(n int64) batch.FileProgress {
		return batch.FileProgress{Upload: longID + fmt.Sprint(n), Pieces: int(n) * 4500, Bytes: n << 41, Tail: sum}
	}
	return batch.Progress{
		Step: step, Line: step * 9_999_999, Part: sum, Piece: 1 << 29,
		Output: file(1), Errors: file(2), Receipts: batch.FileProgress{Bytes: 3},
		Counts: batch.Counts{Total: 1 << 40, Completed: 1<<40 - 7, Failed: 7}, Usage: usage(),
	}
}

// advance makes a step of b, which tok finalizes, and gives b as it then is.
func advance(t T, p EndingsPorts, b batch.Batch, tok lease.Token, to batch.Progress) batch.Batch {
	t.Helper()
	succeeds(t, "advance", p.Endings.Advance(t.Context(), b.Tenant, b.ID, tok, to, at(time.Hour), at(time.Minute)))
	b.Progress, b.FinalizerUntil = to, at(time.Hour)
	b.Ver++
	unchanged(t, p, "stored", b)
	return b
}

func advanceRecords(t T, p EndingsPorts) {
	tok := token()
	b := finalizing(t, p, batch.Completed, tok)
	b = advance(t, p, b, tok, progress(1))
	b = advance(t, p, b, tok, progress(2))
	advance(t, p, b, tok, batch.Progress{Step: 3}) // begun anew
}

func advanceAgain(t T, p EndingsPorts) {
	tok := token()
	b := finalizing(t, p, batch.Completed, tok)
	for step := range int64(2) {
		b = advance(t, p, b, tok, progress(step+1))
		succeeds(t, "advance again", p.Endings.Advance(t.Context(), b.Tenant, b.ID, tok, progress(step+1), at(time.Hour), at(time.Minute)))
		unchanged(t, p, "stored", b)
	}
}

func advanceSteps(t T, p EndingsPorts) {
	tok := token()
	b := finalizing(t, p, batch.Completed, tok)
	not := func(step int64) {
		t.Helper()
		what := fmt.Sprintf("advance from step %d to %d", b.Progress.Step, step)
		refuses(t, what, p.Endings.Advance(t.Context(), b.Tenant, b.ID, tok, progress(step), at(2*time.Hour), at(0)), lease.ErrLost)
		unchanged(t, p, what, b)
	}
	not(2)
	b = advance(t, p, b, tok, progress(1))
	not(3)
	b = advance(t, p, b, tok, progress(2))
	not(1)
	b = advance(t, p, b, tok, progress(3))
	not(1)
	not(2)
	not(5)
}

func advanceLost(t T, p EndingsPorts) {
	tok := token()
	for name, b := range map[string]batch.Batch{
		"in progress": ending(t, p, batch.Completed),
		"another's":   finalizing(t, p, batch.Completed, token()),
		"closed":      closed(t, p, batch.Completed, tok),
	} {
		lostSteps(t, p, name, b, tok)
	}
	others := token()
	b := finalizing(t, p, batch.Expired, others)
	lostSteps(t, p, "another's, who advanced", advance(t, p, b, others, progress(1)), tok)
	b = finalizing(t, p, batch.Cancelled, tok)
	b = advance(t, p, b, tok, progress(1))
	b = value(p.Endings.Close(t.Context(), b.Tenant, b.ID, tok, result(), at(0)))(t, "close")
	lostSteps(t, p, "closed, after a step", b, tok)
}

func lostSteps(t T, p EndingsPorts, name string, b batch.Batch, tok lease.Token) {
	t.Helper()
	for step := range int64(2) {
		what := fmt.Sprintf("advance a batch that is %s to step %d", name, step+1)
		refuses(t, what, p.Endings.Advance(t.Context(), b.Tenant, b.ID, tok, progress(step+1), at(2*time.Hour), at(0)), lease.ErrLost)
		unchanged(t, p, what, b)
	}
}

func advanceInherited(t T, p EndingsPorts) {
	loser, robber := token(), token()
	b := finalizing(t, p, batch.Completed, loser)
	b = advance(t, p, b, loser, progress(1))
	got := value(p.Endings.Finalize(t.Context(), b.Tenant, b.ID, robber, at(3*time.Hour), at(2*time.Hour), at(2*time.Hour)))(t, "rob")
	b = robbed(b, robber, at(3*time.Hour))
	same(t, "answer", got, b)
	refuses(t, "advance by the robbed", p.Endings.Advance(t.Context(), b.Tenant, b.ID, loser, progress(2), at(4*time.Hour), at(0)), lease.ErrLost)
	unchanged(t, p, "stored", b)
	advance(t, p, b, robber, progress(2))
}

func advanceStays(t T, p EndingsPorts) {
	tok := token()
	b := finalizing(t, p, batch.Completed, tok)
	b = advance(t, p, b, tok, progress(1))
	want := closedAs(b, result(), at(2*time.Hour))
	same(t, "answer", value(p.Endings.Close(t.Context(), b.Tenant, b.ID, tok, result(), at(2*time.Hour)))(t, "close"), want)
	unchanged(t, p, "stored", want)
}
