package storetest

import (
	"fmt"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

var checkpointCases = []Case[ClaimsPorts]{
	{"checkpoint/makes a chunk count", checkpointCounts},
	{"checkpoint/the first of a part", checkpointFirst},
	{"checkpoint/again is its own lost write", checkpointAgain},
	{"checkpoint/the last makes the part done", checkpointLast},
	{"checkpoint/only from where the part is", checkpointFrom},
	{"checkpoint/another's with the same end is lost", checkpointOther},
	{"checkpoint/one of many from one place wins", checkpointRace},
	{"checkpoint/100 chunks and 2,000 lines", checkpointMany},
	{"checkpoint/what was given or got is not shared", checkpointShared},
}

// checkpointedAs gives p as a checkpoint leaves it.
func checkpointedAs(p batch.Part, k batch.Checkpoint, until time.Time) batch.Part {
	p.Processed, p.DoneLines = k.To, k.Done
	p.Chunks = append(append([]batch.Chunk(nil), p.Chunks...), k.Chunk)
	p.Attempts, p.Suspect, p.Begun = 0, batch.Suspect{}, k.Begun
	p.LeaseUntil, p.Due = until, until
	if k.Last {
		p.State, p.Due = batch.Done, time.Time{}
	}
	p.Ver++
	return p
}

func checkpointCounts(t T, p ClaimsPorts) {
	part, c := held(t, p)
	k := next()
	want := checkpointedAs(part, k, until)
	succeeds(t, "checkpoint", p.Claims.Checkpoint(t.Context(), c, k, until, at(0)))
	unchangedPart(t, p, "stored", want)
	k = batch.Checkpoint{From: 4, To: 5, Done: bits(5, 0, 1, 2, 3, 4), Chunk: chunk(1), Begun: 17}
	want = checkpointedAs(want, k, until.Add(time.Minute))
	succeeds(t, "the next one", p.Claims.Checkpoint(t.Context(), c, k, until.Add(time.Minute), at(0)))
	unchangedPart(t, p, "stored", want)
}

func checkpointFirst(t T, p ClaimsPorts) {
	part := barePart(key(0))
	part.Lines = 9
	insert(t, p.Parts, part)
	c := batch.Claim{PartKey: part.PartKey, Token: token()}
	part = value(p.Claims.Claim(t.Context(), c, task, 1, until, at(0)))(t, "claim")
	k := batch.Checkpoint{From: 0, To: 2, Done: bits(9, 0, 8), Chunk: batch.Chunk{Key: "k", N: 2, OK: 2}}
	succeeds(t, "checkpoint", p.Claims.Checkpoint(t.Context(), c, k, until, at(0)))
	unchangedPart(t, p, "stored", checkpointedAs(part, k, until))
}

func checkpointAgain(t T, p ClaimsPorts) {
	_, c := held(t, p)
	k := next()
	succeeds(t, "checkpoint", p.Claims.Checkpoint(t.Context(), c, k, until, at(0)))
	first := lookPart(t, p.Parts, c.PartKey)
	for range 2 {
		succeeds(t, "checkpoint again", p.Claims.Checkpoint(t.Context(), c, k, until.Add(time.Minute), at(0)))
		unchangedPart(t, p, "stored", first)
	}
}

// checkpointLast: done with its last line, in one write; its repetition is its
// own lost write, and nothing of the claim's counts any more.
func checkpointLast(t T, p ClaimsPorts) {
	part, c := held(t, p)
	k := batch.Checkpoint{From: 3, To: 5, Done: bits(5, 0, 1, 2, 3, 4), Chunk: chunk(2), Last: true}
	refuses(t, "from elsewhere", p.Claims.Checkpoint(t.Context(), c, batch.Checkpoint{From: 2, To: 5, Done: k.Done, Chunk: chunk(3), Last: true}, until, at(0)), lease.ErrLost)
	want := checkpointedAs(part, k, until)
	for range 2 {
		succeeds(t, "checkpoint", p.Claims.Checkpoint(t.Context(), c, k, until, at(0)))
		unchangedPart(t, p, "stored", want)
	}
	refuses(t, "heartbeat", p.Claims.Heartbeat(t.Context(), c, 0, until.Add(time.Hour), at(0)), lease.ErrLost)
	refuses(t, "hand over", p.Claims.HandOver(t.Context(), c, 0, until, at(0)), lease.ErrLost)
	succeeds(t, "finish", p.Claims.Finish(t.Context(), c, 5, at(0)))
	unchangedPart(t, p, "stored", want)
}

func checkpointFrom(t T, p ClaimsPorts) {
	part, c := held(t, p)
	for _, k := range []batch.Checkpoint{{From: 0, To: 1}, {From: 2, To: 4}, {From: 4, To: 5}, {From: 0, To: 5}} {
		k.Done, k.Chunk = bits(5, 1, 2, 3), chunk(k.To-k.From)
		what := fmt.Sprintf("checkpoint from %d to %d at 3", k.From, k.To)
		refuses(t, what, p.Claims.Checkpoint(t.Context(), c, k, until, at(0)), lease.ErrLost)
		unchangedPart(t, p, what, part)
	}
}

// checkpointOther: a replaced worker's checkpoint ends where its successor's
// did. The number is no proof of who wrote it; the owner is.
func checkpointOther(t T, p ClaimsPorts) {
	part, c := held(t, p)
	c.Token = token()
	k := batch.Checkpoint{From: 1, To: 3, Done: bits(5, 0, 1, 2), Chunk: chunk(2)}
	refuses(t, "checkpoint", p.Claims.Checkpoint(t.Context(), c, k, until, at(0)), lease.ErrLost)
	unchangedPart(t, p, "stored", part)
}

func checkpointRace(t T, p ClaimsPorts) {
	part := midPart(key(0), token())
	part.Lines = 3 + racers
	part.DoneLines = bits(part.Lines, 0, 1, 2)
	p.Seed(t, part)
	c := batch.Claim{PartKey: part.PartKey, Token: part.Owner}
	steps := make([]batch.Checkpoint, racers)
	for i := range steps {
		steps[i] = batch.Checkpoint{From: 3, To: 4 + i, Done: part.DoneLines.Clone(), Chunk: chunk(1 + i)}
		for n := 3; n < steps[i].To; n++ {
			steps[i].Done.Set(n)
		}
	}
	errs := race(racers, func(i int) error { return p.Claims.Checkpoint(t.Context(), c, steps[i], until, at(0)) })
	won := winner(t, errs, lease.ErrLost)
	unchangedPart(t, p, "stored", checkpointedAs(part, steps[won], until))
}

func checkpointMany(t T, p ClaimsPorts) {
	const lines, step = 2000, 20
	part := fullPart(key(0))
	part.Lines = lines
	insert(t, p.Parts, part)
	c := batch.Claim{PartKey: part.PartKey, Token: token()}
	want := value(p.Claims.Claim(t.Context(), c, task, 1, until, at(0)))(t, "claim")
	done := batch.NewBitmap(lines)
	for from := 0; from < lines; from += step {
		for i := range step { // lines finish all over the part
			done.Set((from + i) * 7 % lines)
		}
		k := batch.Checkpoint{From: from, To: from + step, Done: done.Clone(), Chunk: chunk(step)}
		want = checkpointedAs(want, k, until.Add(time.Duration(from)*time.Second))
		succeeds(t, "checkpoint", p.Claims.Checkpoint(t.Context(), c, k, want.LeaseUntil, at(0)))
	}
	got := lookPart(t, p.Parts, part.PartKey)
	same(t, "stored", got, want)
	if n := got.DoneLines.Count(); n != lines || len(got.Chunks) != lines/step {
		t.Errorf("%d lines in %d chunks", n, len(got.Chunks))
	}
	if parts, _ := all(t, p.Parts, part.PartKey); len(parts) != 1 {
		t.Errorf("%d parts", len(parts))
	} else {
		same(t, "among all", parts[0], want)
	}
	succeeds(t, "finish", p.Claims.Finish(t.Context(), c, lines, at(0)))
}

func checkpointShared(t T, p ClaimsPorts) {
	_, c := held(t, p)
	k := next()
	succeeds(t, "checkpoint", p.Claims.Checkpoint(t.Context(), c, k, until, at(0)))
	first, second := lookPart(t, p.Parts, c.PartKey), lookPart(t, p.Parts, c.PartKey)
	k.Done.Set(3)
	unchangedPart(t, p, "after the writer's change", first)
	second.DoneLines.Set(3)
	second.Chunks[0].Key = "changed"
	unchangedPart(t, p, "after a reader's change", first)
}
