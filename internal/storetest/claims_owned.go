package storetest

import (
	"fmt"
	"strings"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

var ownedCases = []Case[ClaimsPorts]{
	{"heartbeat/prolongs the lease, says what is begun, and nothing else", heartbeatProlongs},
	{"owner's writes/only the owner's", ownedByOther},
	{"owner's writes/only while leased", ownedOver},
}

var releaseCases = []Case[ClaimsPorts]{
	{"finish/marks the part done", finishDone},
	{"finish/again is its own lost write", finishAgain},
	{"finish/not before every line is committed", finishEarly},
	{"hand over/gives the part back", handOverGives},
	{"fail/gives the part back with its reason", failGives},
	{"fail/a reason that is too long", failLong},
	{"hand over and fail/the next claim", releasedNext},
}

// held is midPart, stored, with its claim.
func held(t T, p ClaimsPorts) (batch.Part, batch.Claim) {
	t.Helper()
	part := midPart(key(0), token())
	p.Seed(t, part)
	return part, batch.Claim{PartKey: part.PartKey, Token: part.Owner}
}

func heartbeatProlongs(t T, p ClaimsPorts) {
	part, c := held(t, p)
	want := part
	for i, begun := range []int{132, 0, 7} {
		want.LeaseUntil, want.Begun = until.Add(time.Duration(i)*time.Hour), begun
		want.Ver++
		succeeds(t, "heartbeat", p.Claims.Heartbeat(t.Context(), c, want.Begun, want.LeaseUntil, at(0)))
		unchangedPart(t, p, "stored", want)
	}
}

// ownedByOther: the part is leased, its progress is what the write expects, and
// only the owner is another.
func ownedByOther(t T, p ClaimsPorts) {
	part, c := held(t, p)
	c.Token = token()
	for name, do := range ownerWrites(p, c) {
		refuses(t, name+" by another", do(t.Context()), lease.ErrLost)
		unchangedPart(t, p, "after another's "+name, part)
	}
}

// ownedOver: the part is in another state, but all else is what the write
// expects, the owner included. A done part keeps its owner, so that the owner's
// own late writes are the ones to fear.
func ownedOver(t T, p ClaimsPorts) {
	for _, state := range []batch.State{batch.Pending, batch.Done, batch.Dead, batch.Sealed} {
		part := midPart(key(0), token())
		part.State = state
		p.Seed(t, part)
		for name, do := range ownerWrites(p, batch.Claim{PartKey: part.PartKey, Token: part.Owner}) {
			if state == batch.Done && name == "Finish" {
				continue // its own lost write
			}
			refuses(t, fmt.Sprintf("%s of a part that is %s", name, state), do(t.Context()), lease.ErrLost)
			unchangedPart(t, p, fmt.Sprintf("%s, after %s", state, name), part)
		}
	}
}

// allDone is midPart with its five lines committed, stored, with its claim.
func allDone(t T, p ClaimsPorts) (batch.Part, batch.Claim) {
	t.Helper()
	part := midPart(key(0), token())
	part.Processed, part.DoneLines = 5, bits(5, 0, 1, 2, 3, 4)
	p.Seed(t, part)
	return part, batch.Claim{PartKey: part.PartKey, Token: part.Owner}
}

// finishDone: what becomes of lease_until is left open.
func finishDone(t T, p ClaimsPorts) {
	part, c := allDone(t, p)
	succeeds(t, "finish", p.Claims.Finish(t.Context(), c, 5, at(0)))
	want := part
	want.State, want.Due = batch.Done, time.Time{}
	want.Ver++
	same(t, "stored", lookPart(t, p.Parts, part.PartKey), want, "LeaseUntil")
}

func finishAgain(t T, p ClaimsPorts) {
	_, c := allDone(t, p)
	succeeds(t, "finish", p.Claims.Finish(t.Context(), c, 5, at(0)))
	done := lookPart(t, p.Parts, c.PartKey)
	succeeds(t, "finish again", p.Claims.Finish(t.Context(), c, 5, at(time.Hour)))
	unchangedPart(t, p, "stored", done)
	c.Token = token()
	refuses(t, "finish by another", p.Claims.Finish(t.Context(), c, 5, at(0)), lease.ErrLost)
	unchangedPart(t, p, "after another's finish", done)
}

func finishEarly(t T, p ClaimsPorts) {
	part, c := held(t, p)
	for _, lines := range []int{0, 2, 4, 5} {
		refuses(t, fmt.Sprintf("finish at 3 lines of %d", lines), p.Claims.Finish(t.Context(), c, lines, at(0)), lease.ErrLost)
		unchangedPart(t, p, "stored", part)
	}
}

// releasedAs gives p as a worker gives it back. What becomes of lease_until,
// which nobody holds, is left open.
func releasedAs(p batch.Part, due time.Time) batch.Part {
	p.State, p.Owner, p.Due, p.Begun = batch.Pending, "", due, 0
	p.Ver++
	return p
}

func handOverGives(t T, p ClaimsPorts) {
	for _, attempts := range []int{0, 1, 7} {
		part, c := held(t, p)
		want := releasedAs(part, at(2*time.Hour))
		want.Attempts = attempts
		succeeds(t, "hand over", p.Claims.HandOver(t.Context(), c, attempts, at(2*time.Hour), at(0)))
		same(t, "stored", lookPart(t, p.Parts, part.PartKey), want, "LeaseUntil")
		refuses(t, "again", p.Claims.HandOver(t.Context(), c, attempts, at(3*time.Hour), at(0)), lease.ErrLost)
		same(t, "after the second", lookPart(t, p.Parts, part.PartKey), want, "LeaseUntil")
	}
}

func failGives(t T, p ClaimsPorts) {
	long := awkward + strings.Repeat("x", 1000-len(awkward))
	for _, reason := range []string{"", "store: timed out", awkward, long} {
		part, c := held(t, p)
		want := releasedAs(part, at(2*time.Hour))
		want.LastError = reason
		succeeds(t, "fail", p.Claims.Fail(t.Context(), c, reason, at(2*time.Hour), at(0)))
		same(t, "stored", lookPart(t, p.Parts, part.PartKey), want, "LeaseUntil")
		refuses(t, "again", p.Claims.Fail(t.Context(), c, "another", at(3*time.Hour), at(0)), lease.ErrLost)
		same(t, "after the second", lookPart(t, p.Parts, part.PartKey), want, "LeaseUntil")
	}
}

// failLong: at most 1,000 bytes is the caller's promise. Longer ones may be cut
// or refused, but the item must not grow.
func failLong(t T, p ClaimsPorts) {
	part, c := held(t, p)
	if err := p.Claims.Fail(t.Context(), c, strings.Repeat("x", 1001), at(0), at(0)); err != nil {
		unchangedPart(t, p, "after the refusal", part)
	}
	if got := lookPart(t, p.Parts, part.PartKey).LastError; len(got) > 1000 {
		t.Errorf("a reason of %d bytes is stored", len(got))
	}
}

// releasedNext: a part that was given back, with or without a time at which it
// is due, can be claimed, and its progress is where it was.
func releasedNext(t T, p ClaimsPorts) {
	for name, give := range map[string]func(batch.Claim, time.Time) error{
		"hand over": func(c batch.Claim, due time.Time) error { return p.Claims.HandOver(t.Context(), c, 2, due, at(0)) },
		"fail":      func(c batch.Claim, due time.Time) error { return p.Claims.Fail(t.Context(), c, "reason", due, at(0)) },
	} {
		for _, due := range []time.Time{{}, at(time.Hour)} {
			_, c := held(t, p)
			succeeds(t, name, give(c, due))
			free := lookPart(t, p.Parts, c.PartKey)
			if !free.Due.Equal(stored(due)) {
				t.Errorf("%s: due %v, want %v", name, free.Due, due)
			}
			c.Token = token()
			want := claimedAs(free, c.Token, task, until)
			same(t, "claim after "+name, value(p.Claims.Claim(t.Context(), c, task, 3, until, at(0)))(t, "claim"), want)
		}
	}
}
