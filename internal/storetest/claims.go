package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// ClaimsPorts are what the suite of batch.Claims needs.
type ClaimsPorts struct {
	Parts  batch.Parts
	Claims batch.Claims
	// Seed stores a part exactly as given, Ver too, whatever is there: the
	// states that other writers (steals, the reaper, seals) leave behind.
	Seed func(T, batch.Part)
}

// RunClaims runs the suite of batch.Claims.
func RunClaims(t *testing.T, open func(T) ClaimsPorts) {
	t.Helper()
	run(t, ClaimsCases(), open)
}

// ClaimsCases is the suite of batch.Claims.
func ClaimsCases() []Case[ClaimsPorts] {
	cases := []Case[ClaimsPorts]{
		{"claim/takes a pending part", claimTakes},
		{"claim/the first of a planned part", claimFirst},
		{"claim/again is the holder's own lost write", claimAgain},
		{"claim/not while another holds it", claimHeld},
		{"claim/not what is over or dead", claimOver},
		{"claim/not once the attempts are used up", claimExhausted},
		{"claim/one of many wins", claimRace},
		{"unknown and foreign parts", claimsUnknown},
		{"a replaced worker writes nothing", claimsReplaced},
		{"a context that is over", claimsInterrupted},
	}
	return slices.Concat(cases, ownedCases, suspectCases, checkpointCases, releaseCases)
}

const task = "AQDE/task+token=="

// unchangedPart demands that p is stored as it is.
func unchangedPart(t T, ports ClaimsPorts, what string, p batch.Part) {
	t.Helper()
	same(t, what, lookPart(t, ports.Parts, p.PartKey), p)
}

// claimedAs gives p, which is pending, as Claim leaves it.
func claimedAs(p batch.Part, tok lease.Token, task string, until time.Time) batch.Part {
	p.State, p.Owner, p.TaskToken = batch.Leased, tok, task
	p.LeaseUntil, p.Due = until, until
	p.Attempts++
	p.Resends, p.Begun = 0, 0
	p.Ver++
	return p
}

// pendingPart is midPart after its worker gave it back.
func pendingPart(k batch.PartKey) batch.Part {
	p := midPart(k, "")
	p.State, p.LeaseUntil = batch.Pending, time.Time{}
	return p
}

func claimTakes(t T, p ClaimsPorts) {
	for _, task := range []string{task, "", awkward} {
		before := pendingPart(key(0))
		p.Seed(t, before)
		c := batch.Claim{PartKey: before.PartKey, Token: token()}
		want := claimedAs(before, c.Token, task, until)
		got := value(p.Claims.Claim(t.Context(), c, task, before.Attempts+1, until, at(0)))(t, "claim")
		same(t, "answer", got, want)
		unchangedPart(t, p, "stored", want)
	}
}

func claimFirst(t T, p ClaimsPorts) {
	part := barePart(key(0))
	insert(t, p.Parts, part)
	before := lookPart(t, p.Parts, part.PartKey)
	c := batch.Claim{PartKey: part.PartKey, Token: token()}
	want := claimedAs(before, c.Token, task, until)
	same(t, "answer", value(p.Claims.Claim(t.Context(), c, task, 1, until, at(0)))(t, "claim"), want)
	unchangedPart(t, p, "stored", want)
}

// claimAgain: the answer got lost, and the caller asks again. Its attempt is
// counted once, and used-up attempts don't matter.
func claimAgain(t T, p ClaimsPorts) {
	before := pendingPart(key(0))
	p.Seed(t, before)
	c := batch.Claim{PartKey: before.PartKey, Token: token()}
	first := value(p.Claims.Claim(t.Context(), c, task, 3, until, at(0)))(t, "claim")
	again := value(p.Claims.Claim(t.Context(), c, task, 3, until, at(0)))(t, "claim again")
	same(t, "answer", again, first)
	unchangedPart(t, p, "stored", first)
}

func claimHeld(t T, p ClaimsPorts) {
	for _, now := range []time.Time{at(0), until.Add(time.Hour)} {
		held := midPart(key(0), token())
		p.Seed(t, held)
		err := fault(p.Claims.Claim(t.Context(), batch.Claim{PartKey: held.PartKey, Token: token()}, task, 9, now.Add(time.Minute), now))
		refuses(t, "claim", err, lease.ErrHeld)
		if e, ok := errors.AsType[*batch.HeldError](err); !ok {
			t.Errorf("%v is no *HeldError", err)
		} else if !e.Until.Equal(stored(held.LeaseUntil)) || e.Ver != held.Ver {
			t.Errorf("held until %v at ver %d, want %v and %d", e.Until, e.Ver, stored(held.LeaseUntil), held.Ver)
		}
		unchangedPart(t, p, "stored", held)
	}
}

func claimOver(t T, p ClaimsPorts) {
	for state, want := range map[batch.State]error{batch.Done: batch.ErrOver, batch.Sealed: batch.ErrOver, batch.Dead: batch.ErrDead} {
		for _, owner := range []lease.Token{"", token()} {
			part := midPart(key(0), owner)
			part.State = state
			p.Seed(t, part)
			for _, tok := range []lease.Token{token(), owner} {
				if tok == "" {
					continue
				}
				err := fault(p.Claims.Claim(t.Context(), batch.Claim{PartKey: part.PartKey, Token: tok}, task, 9, until, at(0)))
				refuses(t, fmt.Sprintf("claim a part that is %s", state), err, want)
				unchangedPart(t, p, "stored", part)
			}
		}
	}
}

func claimExhausted(t T, p ClaimsPorts) {
	for _, spent := range []int{3, 4, 100} {
		part := pendingPart(key(0))
		part.Attempts = spent
		p.Seed(t, part)
		err := fault(p.Claims.Claim(t.Context(), batch.Claim{PartKey: part.PartKey, Token: token()}, task, 3, until, at(0)))
		refuses(t, fmt.Sprintf("claim after %d attempts of 3", spent), err, batch.ErrExhausted)
		unchangedPart(t, p, "stored", part)
	}
}

func claimRace(t T, p ClaimsPorts) {
	before := pendingPart(key(0))
	p.Seed(t, before)
	toks := make([]lease.Token, racers)
	for i := range toks {
		toks[i] = token()
	}
	errs := race(racers, func(i int) error {
		return fault(p.Claims.Claim(t.Context(), batch.Claim{PartKey: before.PartKey, Token: toks[i]}, task, 9, until, at(0)))
	})
	won := winner(t, errs, lease.ErrHeld)
	unchangedPart(t, p, "stored", claimedAs(before, toks[won], task, until))
}

// next is a checkpoint of a part of five lines, three of them committed (see
// midPart), that commits one more.
func next() batch.Checkpoint {
	return batch.Checkpoint{From: 3, To: 4, Done: bits(5, 0, 1, 2, 4), Chunk: chunk(1)}
}

// ownerWrites is each write that only a part's owner may make.
func ownerWrites(p ClaimsPorts, c batch.Claim) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Heartbeat": func(ctx context.Context) error { return p.Claims.Heartbeat(ctx, c, 0, until.Add(time.Hour), at(0)) },
		"Suspect": func(ctx context.Context) error {
			return p.Claims.Suspect(ctx, c, batch.Suspect{Line: 1, Strikes: 1, By: c.Token}, 3, until.Add(time.Hour), at(0))
		},
		"Checkpoint": func(ctx context.Context) error {
			return p.Claims.Checkpoint(ctx, c, next(), until.Add(time.Hour), at(0))
		},
		"Finish":   func(ctx context.Context) error { return p.Claims.Finish(ctx, c, 3, at(0)) },
		"HandOver": func(ctx context.Context) error { return p.Claims.HandOver(ctx, c, 0, at(time.Hour), at(0)) },
		"Fail":     func(ctx context.Context) error { return p.Claims.Fail(ctx, c, "reason", at(time.Hour), at(0)) },
	}
}

func claimsUnknown(t T, p ClaimsPorts) {
	held := midPart(key(0), token())
	p.Seed(t, held)
	for what, k := range map[string]batch.PartKey{
		"unknown part":          {Tenant: held.Tenant, Batch: held.Batch, N: 1},
		"unknown batch":         {Tenant: held.Tenant, Batch: "batch_none", N: 0},
		"another tenant's part": {Tenant: tenant(), Batch: held.Batch, N: 0},
	} {
		c := batch.Claim{PartKey: k, Token: held.Owner}
		refuses(t, "claim of an "+what, fault(p.Claims.Claim(t.Context(), c, task, 3, until, at(0))), batch.ErrNotFound)
		for name, do := range ownerWrites(p, c) {
			refuses(t, name+" of an "+what, do(t.Context()), batch.ErrNotFound)
		}
		refuses(t, "get after those", fault(p.Parts.Get(t.Context(), k)), batch.ErrNotFound)
	}
	unchangedPart(t, p, "stored", held)
}

// claimsReplaced is the protocol's reason to be:
//
//  1. A claims and stalls.
//  2. The part is taken from A (reaped) and B claims it.
//  3. A wakes up and goes on with everything that it had in mind.
func claimsReplaced(t T, p ClaimsPorts) {
	before := pendingPart(key(0))
	p.Seed(t, before)
	a, b := batch.Claim{PartKey: before.PartKey, Token: token()}, batch.Claim{PartKey: before.PartKey, Token: token()}
	lapsed := value(p.Claims.Claim(t.Context(), a, task, 9, until, at(0)))(t, "claim by A")
	lapsed.State, lapsed.Owner = batch.Pending, ""
	p.Seed(t, lapsed)
	held := value(p.Claims.Claim(t.Context(), b, task, 9, until, at(0)))(t, "claim by B")
	for name, do := range ownerWrites(p, a) {
		refuses(t, name+" by A", do(t.Context()), lease.ErrLost)
		unchangedPart(t, p, "after A's "+name, held)
	}
	refuses(t, "claim by A", fault(p.Claims.Claim(t.Context(), a, task, 9, until, at(0))), lease.ErrHeld)
	succeeds(t, "checkpoint by B", p.Claims.Checkpoint(t.Context(), b, next(), until, at(0)))
	held = lookPart(t, p.Parts, held.PartKey)
	refuses(t, "the same checkpoint by A", p.Claims.Checkpoint(t.Context(), a, next(), until, at(0)), lease.ErrLost)
	unchangedPart(t, p, "after A's checkpoint", held)
}

func claimsInterrupted(t T, p ClaimsPorts) {
	held, free := midPart(key(0), token()), pendingPart(key(0))
	p.Seed(t, held)
	p.Seed(t, free)
	calls := ownerWrites(p, batch.Claim{PartKey: held.PartKey, Token: held.Owner})
	calls["Claim"] = func(ctx context.Context) error {
		return fault(p.Claims.Claim(ctx, batch.Claim{PartKey: free.PartKey, Token: token()}, task, 9, until, at(0)))
	}
	interrupts(t, calls)
	unchangedPart(t, p, "held", held)
	unchangedPart(t, p, "free", free)
}
