package storetest

import (
	"fmt"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

var suspectCases = []Case[ClaimsPorts]{
	{"suspect/is written under the claim's token", suspectWritten},
	{"suspect/says again what was there before", suspectLifted},
	{"suspect/only where the part is", suspectFrom},
	{"suspect/a late one is refused once its line is checkpointed", suspectLate},
	{"suspect/lets claims in whatever the attempts", suspectClaim},
	{"suspect/stays until a checkpoint", suspectStays},
	{"hand over and fail/take back the claim's own strike", strikeTakenBack},
	{"hand over and fail/leave another claim's strike", strikeOfAnother},
	{"hand over and fail/one of many takes a strike back", strikeRace},
}

// suspected is midPart with a suspect, stored, with its claim.
func suspected(t T, p ClaimsPorts, s batch.Suspect) (batch.Part, batch.Claim) {
	t.Helper()
	part := midPart(key(0), token())
	part.Suspect = s
	p.Seed(t, part)
	return part, batch.Claim{PartKey: part.PartKey, Token: part.Owner}
}

// gives is both ways in which a worker gives a part back that has attempts.
func gives(t T, p ClaimsPorts, attempts int) map[string]func(batch.Claim) error {
	return map[string]func(batch.Claim) error{
		"hand over": func(c batch.Claim) error {
			return p.Claims.HandOver(t.Context(), c, attempts, at(2*time.Hour), at(0))
		},
		"fail": func(c batch.Claim) error {
			return p.Claims.Fail(t.Context(), c, "reason", at(2*time.Hour), at(0))
		},
	}
}

func suspectWritten(t T, p ClaimsPorts) {
	part, c := held(t, p)
	for strikes := range 2 {
		s := batch.Suspect{Line: 3, Strikes: strikes + 1, By: c.Token}
		part.Suspect = s
		part.LeaseUntil, part.Begun = until.Add(time.Duration(strikes)*time.Hour), 1
		for range 2 { // its answer was lost
			part.Ver++
			succeeds(t, "suspect", p.Claims.Suspect(t.Context(), c, s, 3, part.LeaseUntil, at(0)))
			unchangedPart(t, p, "stored", part)
		}
	}
}

// suspectLifted: a line that isn't in flight any more, and has no result. The claim
// that found a suspect leaves it to the next as it was.
func suspectLifted(t T, p ClaimsPorts) {
	for _, found := range []batch.Suspect{{}, {Line: 3, Strikes: 1, By: token()}, {Line: 3, Strikes: 1}} {
		for name, give := range gives(t, p, 2) {
			part, c := suspected(t, p, found)
			s := batch.Suspect{Line: 3, Strikes: found.Strikes + 1, By: c.Token}
			succeeds(t, "suspect", p.Claims.Suspect(t.Context(), c, s, 3, until, at(0)))
			part.LeaseUntil, part.Begun = until, 1
			part.Ver++
			for range 2 { // its answer was lost
				part.Ver++
				succeeds(t, "lift", p.Claims.Suspect(t.Context(), c, found, 3, until, at(0)))
				unchangedPart(t, p, "lifted", part)
			}
			succeeds(t, name, give(c))
			part = releasedAs(part, at(2*time.Hour))
			if name == "fail" {
				part.LastError = "reason"
			}
			same(t, name, lookPart(t, p.Parts, part.PartKey), part, "LeaseUntil")
		}
	}
}

func suspectFrom(t T, p ClaimsPorts) {
	part, c := held(t, p)
	for _, processed := range []int{0, 2, 4, 5} {
		what := fmt.Sprintf("suspect at %d lines, which are 3", processed)
		refuses(t, what, p.Claims.Suspect(t.Context(), c, batch.Suspect{Line: 1, Strikes: 1, By: c.Token}, processed, until, at(0)), lease.ErrLost)
		unchangedPart(t, p, what, part)
	}
}

// suspectLate:
//
//  1. A suspect is written, the call fails with its fate unknown, and is repeated.
//  2. The line is sent, comes back and is checkpointed.
//  3. The first call was only late, and lands.
func suspectLate(t T, p ClaimsPorts) {
	_, c := held(t, p)
	late := func() error {
		return p.Claims.Suspect(t.Context(), c, batch.Suspect{Line: 1, Strikes: 1, By: c.Token}, 3, until, at(0))
	}
	succeeds(t, "suspect", late())
	succeeds(t, "checkpoint", p.Claims.Checkpoint(t.Context(), c, next(), until, at(0)))
	want := lookPart(t, p.Parts, c.PartKey)
	refuses(t, "the late one", late(), lease.ErrLost)
	unchangedPart(t, p, "stored", want)
	if !want.Suspect.None() {
		t.Errorf("a checkpointed part has suspect %+v", want.Suspect)
	}
}

func suspectClaim(t T, p ClaimsPorts) {
	for _, spent := range []int{0, 3, 100} {
		part := pendingPart(key(0))
		part.Attempts, part.Resends, part.Suspect = spent, 2, batch.Suspect{Line: 4, Strikes: 2, By: token()}
		p.Seed(t, part)
		c := batch.Claim{PartKey: part.PartKey, Token: token()}
		want := claimedAs(part, c.Token, task, until)
		same(t, "answer", value(p.Claims.Claim(t.Context(), c, task, 3, until, at(0)))(t, fmt.Sprintf("claim after %d attempts of 3", spent)), want)
		unchangedPart(t, p, "stored", want)
	}
}

func suspectStays(t T, p ClaimsPorts) {
	part, c := suspected(t, p, batch.Suspect{Line: 1, Strikes: 1, By: token()})
	succeeds(t, "heartbeat", p.Claims.Heartbeat(t.Context(), c, 0, until, at(0)))
	part.LeaseUntil, part.Begun = until, 0
	part.Ver++
	unchangedPart(t, p, "after a heartbeat", part)
	k := next()
	succeeds(t, "checkpoint", p.Claims.Checkpoint(t.Context(), c, k, until, at(0)))
	unchangedPart(t, p, "after a checkpoint", checkpointedAs(part, k, until))
}

// strikeTakenBack: a claim that comes to another end than death clears its line.
func strikeTakenBack(t T, p ClaimsPorts) {
	for name, give := range gives(t, p, 2) {
		for strikes, want := range map[int]batch.Suspect{1: {}, 2: {Line: 3, Strikes: 1}} {
			what := fmt.Sprintf("%s with strike %d of its own", name, strikes)
			part, c := held(t, p)
			succeeds(t, "suspect", p.Claims.Suspect(t.Context(), c, batch.Suspect{Line: 3, Strikes: strikes, By: c.Token}, 3, until, at(0)))
			succeeds(t, what, give(c))
			part.Ver++
			part = releasedAs(part, at(2*time.Hour))
			part.Suspect = want
			if name == "fail" {
				part.LastError = "reason"
			}
			same(t, what, lookPart(t, p.Parts, part.PartKey), part, "LeaseUntil")
			refuses(t, what+" again", give(c), lease.ErrLost)
		}
	}
}

// strikeOfAnother: the worker that wrote it died.
func strikeOfAnother(t T, p ClaimsPorts) {
	for name, give := range gives(t, p, 2) {
		for _, s := range []batch.Suspect{{Line: 0, Strikes: 1, By: token()}, {Line: 4, Strikes: 2, By: token()}, {Line: 4, Strikes: 1}} {
			part, c := suspected(t, p, s)
			succeeds(t, name, give(c))
			part = releasedAs(part, at(2*time.Hour))
			if name == "fail" {
				part.LastError = "reason"
			}
			same(t, name, lookPart(t, p.Parts, part.PartKey), part, "LeaseUntil")
		}
	}
}

// strikeRace: a store that needs two writes for it must make only one of them
// count.
func strikeRace(t T, p ClaimsPorts) {
	for name, give := range gives(t, p, 2) {
		part, c := held(t, p)
		succeeds(t, "suspect", p.Claims.Suspect(t.Context(), c, batch.Suspect{Line: 3, Strikes: 2, By: c.Token}, 3, until, at(0)))
		winner(t, race(racers, func(int) error { return give(c) }), lease.ErrLost)
		got := lookPart(t, p.Parts, part.PartKey)
		if want := (batch.Suspect{Line: 3, Strikes: 1}); got.Suspect != want || got.Ver != part.Ver+2 {
			t.Errorf("after %d times %s: suspect %+v at version %d, want %+v at %d", racers, name, got.Suspect, got.Ver, want, part.Ver+2)
		}
	}
}
