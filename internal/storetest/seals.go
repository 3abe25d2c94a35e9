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

// SealsPorts are what the suite of batch.Seals needs.
type SealsPorts struct {
	Parts  batch.Parts
	Claims batch.Claims
	Seals  batch.Seals
	// Seed stores a part exactly as given, Ver too, whatever is there.
	Seed func(T, batch.Part)
}

// RunSeals runs the suite of batch.Seals.
func RunSeals(t *testing.T, open func(T) SealsPorts) {
	t.Helper()
	run(t, SealsCases(), open)
}

// SealsCases is the suite of batch.Seals.
func SealsCases() []Case[SealsPorts] {
	return []Case[SealsPorts]{
		{"seal/an open part, whoever holds it", sealOpen},
		{"seal/again is its own lost write", sealAgain},
		{"seal/a part that is over is left as it is", sealOver},
		{"seal/not a part that was written since it was read", sealStale},
		{"seal/its holder writes nothing any more", sealHolder},
		{"seal/nobody claims it", sealClaim},
		{"seal/one of many seals, and all succeed", sealRace},
		{"seal/a checkpoint or a seal, never both of one version", sealAgainstCheckpoint},
		{"unknown and foreign parts", sealsUnknown},
		{"a context that is over", sealsInterrupted},
	}
}

// sealedAs gives p, which is open, as Seal leaves it. What becomes of
// lease_until, which nobody holds, is left open.
func sealedAs(p batch.Part) batch.Part {
	p.State, p.Owner, p.Due = batch.Sealed, "", time.Time{}
	p.Ver++
	return p
}

// openParts are parts in each state that a seal closes.
func openParts() []batch.Part {
	dead := pendingPart(key(0))
	dead.State, dead.Attempts = batch.Dead, 3
	lapsed := midPart(key(0), token())
	lapsed.LeaseUntil = at(-time.Hour)
	return []batch.Part{pendingPart(key(0)), midPart(key(0), token()), lapsed, dead}
}

func sealOpen(t T, p SealsPorts) {
	fresh := barePart(key(0))
	insert(t, p.Parts, fresh)
	parts := append(openParts(), lookPart(t, p.Parts, fresh.PartKey))
	for i, part := range parts {
		if i < len(parts)-1 {
			p.Seed(t, part)
		}
		got := value(p.Seals.Seal(t.Context(), part.PartKey, part.Ver, at(0)))(t, fmt.Sprintf("seal a %s part", part.State))
		same(t, "answer for a part that was "+string(part.State), got, sealedAs(part), "LeaseUntil")
		same(t, "stored", lookPart(t, p.Parts, part.PartKey), sealedAs(part), "LeaseUntil")
	}
}

func sealAgain(t T, p SealsPorts) {
	part := midPart(key(0), token())
	p.Seed(t, part)
	first := value(p.Seals.Seal(t.Context(), part.PartKey, part.Ver, at(0)))(t, "seal")
	for _, ver := range []int64{part.Ver, first.Ver, 0} {
		same(t, "answer", value(p.Seals.Seal(t.Context(), part.PartKey, ver, at(time.Hour)))(t, "seal again"), first)
		same(t, "stored", lookPart(t, p.Parts, part.PartKey), first)
	}
}

func sealOver(t T, p SealsPorts) {
	for _, state := range []batch.State{batch.Done, batch.Sealed} {
		part := midPart(key(0), token())
		part.State = state
		p.Seed(t, part)
		for _, ver := range []int64{part.Ver, part.Ver - 1} {
			same(t, "answer", value(p.Seals.Seal(t.Context(), part.PartKey, ver, at(0)))(t, fmt.Sprintf("seal a part that is %s", state)), part)
			same(t, "stored", lookPart(t, p.Parts, part.PartKey), part)
		}
	}
}

func sealStale(t T, p SealsPorts) {
	for _, part := range openParts() {
		p.Seed(t, part)
		for _, ver := range []int64{part.Ver - 1, part.Ver + 1, 0} {
			refuses(t, fmt.Sprintf("seal a %s part at version %d, which is at %d", part.State, ver, part.Ver),
				fault(p.Seals.Seal(t.Context(), part.PartKey, ver, at(0))), batch.ErrStale)
			same(t, "stored", lookPart(t, p.Parts, part.PartKey), part)
		}
	}
}

// sealHolder is what seals are for:
//
//  1. A worker holds a part, saves a chunk, and stalls.
//  2. The batch is cancelled; the part is sealed, and its chunks are read.
//  3. The worker wakes up and goes on with everything that it had in mind.
func sealHolder(t T, p SealsPorts) {
	part := midPart(key(0), token())
	p.Seed(t, part)
	sealed := value(p.Seals.Seal(t.Context(), part.PartKey, part.Ver, at(0)))(t, "seal")
	c := batch.Claim{PartKey: part.PartKey, Token: part.Owner}
	for name, do := range ownerWrites(ClaimsPorts{Parts: p.Parts, Claims: p.Claims}, c) {
		refuses(t, name+" after the seal", do(t.Context()), lease.ErrLost)
		same(t, "after the holder's "+name, lookPart(t, p.Parts, part.PartKey), sealed)
	}
}

func sealClaim(t T, p SealsPorts) {
	part := pendingPart(key(0))
	p.Seed(t, part)
	sealed := value(p.Seals.Seal(t.Context(), part.PartKey, part.Ver, at(0)))(t, "seal")
	refuses(t, "claim", fault(p.Claims.Claim(t.Context(), batch.Claim{PartKey: part.PartKey, Token: token()}, task, 9, until, at(0))), batch.ErrOver)
	same(t, "stored", lookPart(t, p.Parts, part.PartKey), sealed)
}

func sealRace(t T, p SealsPorts) {
	part := midPart(key(0), token())
	p.Seed(t, part)
	for _, err := range race(racers, func(int) error { return fault(p.Seals.Seal(t.Context(), part.PartKey, part.Ver, at(0))) }) {
		succeeds(t, "seal", err)
	}
	same(t, "stored", lookPart(t, p.Parts, part.PartKey), sealedAs(part), "LeaseUntil")
}

// sealAgainstCheckpoint: a checkpoint comes before the seal and counts, and the
// seal is refused; or after it, and the checkpoint is.
func sealAgainstCheckpoint(t T, p SealsPorts) {
	for range 8 {
		part := midPart(key(0), token())
		p.Seed(t, part)
		c := batch.Claim{PartKey: part.PartKey, Token: part.Owner}
		errs := race(2, func(i int) error {
			if i == 0 {
				return p.Claims.Checkpoint(t.Context(), c, next(), until, at(0))
			}
			return fault(p.Seals.Seal(t.Context(), part.PartKey, part.Ver, at(0)))
		})
		got := lookPart(t, p.Parts, part.PartKey)
		switch {
		case errs[0] == nil && errors.Is(errs[1], batch.ErrStale):
			if got.State != batch.Leased || got.Processed != 4 || len(got.Chunks) != 3 {
				t.Errorf("the checkpoint won, but: %+v", got)
			}
		case errs[1] == nil && errors.Is(errs[0], lease.ErrLost):
			same(t, "the seal won", got, sealedAs(part), "LeaseUntil")
		default:
			t.Errorf("checkpoint: %v; seal: %v", errs[0], errs[1])
		}
	}
}

func sealsUnknown(t T, p SealsPorts) {
	part := midPart(key(0), token())
	p.Seed(t, part)
	for what, k := range map[string]batch.PartKey{
		"unknown part":          {Tenant: part.Tenant, Batch: part.Batch, N: 1},
		"unknown batch":         {Tenant: part.Tenant, Batch: "batch_none", N: 0},
		"another tenant's part": {Tenant: tenant(), Batch: part.Batch, N: 0},
	} {
		refuses(t, "seal of an "+what, fault(p.Seals.Seal(t.Context(), k, part.Ver, at(0))), batch.ErrNotFound)
		refuses(t, "get after that", fault(p.Parts.Get(t.Context(), k)), batch.ErrNotFound)
	}
	same(t, "stored", lookPart(t, p.Parts, part.PartKey), part)
}

func sealsInterrupted(t T, p SealsPorts) {
	part := midPart(key(0), token())
	p.Seed(t, part)
	interrupts(t, map[string]func(context.Context) error{
		"Seal": func(ctx context.Context) error { return fault(p.Seals.Seal(ctx, part.PartKey, part.Ver, at(0))) },
	})
	same(t, "stored", lookPart(t, p.Parts, part.PartKey), part)
}
