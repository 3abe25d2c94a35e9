package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/lease"
	"holdfast/internal/upload"
)

// ReapsPorts are what the suites of batch.Reaps and batch.Deaths need.
type ReapsPorts struct {
	ClaimsPorts
	Steals  batch.Steals
	Seals   batch.Seals
	Batches batch.Batches
	Endings batch.Endings
	Files   batch.Files
	Bridge  bridge.Store
	Uploads upload.Store
	Reaps   batch.Reaps
	Deaths  batch.Deaths
}

// RunReaps runs the suite of batch.Reaps.
func RunReaps(t *testing.T, open func(T) ReapsPorts) {
	t.Helper()
	run(t, ReapsCases(), open)
}

// ReapsCases is the suite of batch.Reaps.
func ReapsCases() []Case[ReapsPorts] {
	return append([]Case[ReapsPorts]{
		{"reap/gives a lapsed part back", reapGives},
		{"reap/not before the margin is over, to the millisecond", reapMargin},
		{"reap/not of another version than the one seen", reapStale},
		{"reap/not what nobody holds", reapStates},
		{"reap/again is its own lost write, or another reaper's", reapAgain},
		{"reap/what else became of that version is no reap", reapOther},
		{"reap/many reapers make one write", reapRace},
		{"reap/the holder that was given up writes nothing", reapHolder},
		{"postpone/moves the time and counts", postponeMoves},
		{"postpone/only a pending part", postponeStates},
		{"postpone/not of another version than the one seen", postponeStale},
		{"postpone/again is its own lost write", postponeAgain},
		{"postpone/what else became of that version is no postponement", postponeOther},
		{"postpone/the next claim forgets it", postponeClaim},
		{"unknown and foreign items", reapsUnknown},
		{"a context that is over", reapsInterrupted},
	}, dueCases...)
}

// overdue is when a message that was sent again counts as lost.
var overdue = cut.Add(2 * time.Hour)

// reapedAs gives p, which has lapsed, as Reap leaves it.
func reapedAs(p batch.Part, due time.Time) batch.Part {
	p = releasedAs(lapsedAs(p), due)
	p.LeaseUntil = time.Time{}
	return p
}

func reap(t T, p ReapsPorts, seen batch.Part) (batch.Part, error) {
	return p.Reaps.Reap(t.Context(), seen, cut, overdue, cut)
}

func reapGives(t T, p ReapsPorts) {
	for _, s := range []batch.Suspect{{}, {Line: 1, Strikes: 2, By: token()}} {
		part := lapsedPart(key(0))
		part.Suspect = s // a strike counts now that its claim went without a word
		p.Seed(t, part)
		want := reapedAs(part, overdue)
		same(t, "answer", value(reap(t, p, part))(t, "reap"), want)
		unchangedPart(t, p.ClaimsPorts, "stored", want)
	}
}

func reapMargin(t T, p ReapsPorts) {
	for _, after := range []time.Duration{0, time.Millisecond, time.Hour} {
		part := lapsedPart(key(0))
		part.LeaseUntil = cut.Add(after)
		p.Seed(t, part)
		what := fmt.Sprintf("reap of a part leased until %v after the cut", after)
		refuses(t, what, fault(reap(t, p, part)), batch.ErrStale)
		unchangedPart(t, p.ClaimsPorts, what, part)
	}
}

func reapStale(t T, p ReapsPorts) {
	part := lapsedPart(key(0))
	p.Seed(t, part)
	for _, ver := range []int64{part.Ver - 1, part.Ver + 1, 0} {
		seen := part
		seen.Ver = ver
		what := fmt.Sprintf("reap at version %d of a part at %d", ver, part.Ver)
		refuses(t, what, fault(reap(t, p, seen)), batch.ErrStale)
		unchangedPart(t, p.ClaimsPorts, what, part)
	}
}

func reapStates(t T, p ReapsPorts) {
	for _, state := range []batch.State{batch.Pending, batch.Done, batch.Sealed, batch.Dead} {
		part := lapsedPart(key(0))
		part.State = state
		p.Seed(t, part)
		refuses(t, fmt.Sprintf("reap a part that is %s", state), fault(reap(t, p, part)), batch.ErrStale)
		unchangedPart(t, p.ClaimsPorts, "stored", part)
	}
}

func reapAgain(t T, p ReapsPorts) {
	part := lapsedPart(key(0))
	p.Seed(t, part)
	first := value(reap(t, p, part))(t, "reap")
	for range 2 {
		same(t, "answer", value(reap(t, p, part))(t, "reap again"), first)
		unchangedPart(t, p.ClaimsPorts, "stored", first)
	}
}

// reapOther: the part moved on from the version that was seen, by other writes
// than a reap, which look like one in part.
func reapOther(t T, p ReapsPorts) {
	for name, write := range map[string]func(batch.Part) error{
		"handed over": func(part batch.Part) error {
			return p.Claims.HandOver(t.Context(), batch.Claim{PartKey: part.PartKey, Token: part.Owner}, 0, overdue, cut)
		},
		"stolen": func(part batch.Part) error {
			return fault(robPart(t, StealsPorts{p.ClaimsPorts, p.Steals}, part, token()))
		},
		"reaped, claimed and handed over": func(part batch.Part) error {
			c := batch.Claim{PartKey: part.PartKey, Token: token()}
			return errors.Join(fault(reap(t, p, part)), fault(p.Claims.Claim(t.Context(), c, task, 9, until, cut)),
				p.Claims.HandOver(t.Context(), c, 0, overdue, cut))
		},
	} {
		part := lapsedPart(key(0))
		p.Seed(t, part)
		succeeds(t, name, write(part))
		now := lookPart(t, p.Parts, part.PartKey)
		refuses(t, "reap of what was "+name, fault(reap(t, p, part)), batch.ErrStale)
		unchangedPart(t, p.ClaimsPorts, name, now)
	}
}

func reapRace(t T, p ReapsPorts) {
	part := lapsedPart(key(0))
	p.Seed(t, part)
	for _, err := range race(racers, func(int) error { return fault(reap(t, p, part)) }) {
		succeeds(t, "reap", err)
	}
	unchangedPart(t, p.ClaimsPorts, "stored", reapedAs(part, overdue))
}

func reapHolder(t T, p ReapsPorts) {
	part := lapsedPart(key(0))
	p.Seed(t, part)
	reaped := value(reap(t, p, part))(t, "reap")
	for name, do := range ownerWrites(p.ClaimsPorts, batch.Claim{PartKey: part.PartKey, Token: part.Owner}) {
		refuses(t, name+" of a reaped part", do(t.Context()), lease.ErrLost)
		unchangedPart(t, p.ClaimsPorts, "after "+name, reaped)
	}
}

func postpone(t T, p ReapsPorts, seen batch.Part) (batch.Part, error) {
	return p.Reaps.Postpone(t.Context(), seen, overdue, cut)
}

// postponedAs gives p, which is pending, as Postpone leaves it.
func postponedAs(p batch.Part) batch.Part {
	p.Due = overdue
	p.Resends++
	p.Ver++
	return p
}

func postponeMoves(t T, p ReapsPorts) {
	part := pendingPart(key(0))
	p.Seed(t, part)
	for range 3 {
		want := postponedAs(part)
		same(t, "answer", value(postpone(t, p, part))(t, "postpone"), want)
		unchangedPart(t, p.ClaimsPorts, "stored", want)
		part = want
	}
}

func postponeStates(t T, p ReapsPorts) {
	for _, state := range []batch.State{batch.Leased, batch.Done, batch.Sealed, batch.Dead} {
		part := lapsedPart(key(0))
		part.State = state
		p.Seed(t, part)
		refuses(t, fmt.Sprintf("postpone a part that is %s", state), fault(postpone(t, p, part)), batch.ErrStale)
		unchangedPart(t, p.ClaimsPorts, "stored", part)
	}
}

func postponeStale(t T, p ReapsPorts) {
	part := pendingPart(key(0))
	p.Seed(t, part)
	for _, ver := range []int64{part.Ver - 1, part.Ver + 1, 0} {
		seen := part
		seen.Ver = ver
		refuses(t, fmt.Sprintf("postpone at version %d of a part at %d", ver, part.Ver), fault(postpone(t, p, seen)), batch.ErrStale)
		unchangedPart(t, p.ClaimsPorts, "stored", part)
	}
}

func postponeAgain(t T, p ReapsPorts) {
	part := pendingPart(key(0))
	p.Seed(t, part)
	first := value(postpone(t, p, part))(t, "postpone")
	for _, err := range race(racers, func(int) error { return fault(postpone(t, p, part)) }) {
		succeeds(t, "postpone again", err)
	}
	unchangedPart(t, p.ClaimsPorts, "stored", first)
}

func postponeOther(t T, p ReapsPorts) {
	seen := pendingPart(key(0))
	for name, change := range map[string]func(*batch.Part){
		"dead since":        func(p *batch.Part) { p.State = batch.Dead },
		"two versions on":   func(p *batch.Part) { p.Ver++ },
		"not sent again":    func(p *batch.Part) { p.Resends-- },
		"sent again, twice": func(p *batch.Part) { p.Resends++ },
	} {
		part := postponedAs(seen)
		change(&part)
		p.Seed(t, part)
		refuses(t, "postpone a part that is "+name, fault(postpone(t, p, seen)), batch.ErrStale)
		unchangedPart(t, p.ClaimsPorts, name, part)
	}
}

func postponeClaim(t T, p ReapsPorts) {
	part := pendingPart(key(0))
	p.Seed(t, part)
	part = value(postpone(t, p, part))(t, "postpone")
	c := batch.Claim{PartKey: part.PartKey, Token: token()}
	want := claimedAs(part, c.Token, task, until)
	same(t, "claimed", value(p.Claims.Claim(t.Context(), c, task, 9, until, cut))(t, "claim"), want)
	unchangedPart(t, p.ClaimsPorts, "stored", want)
}

func reapsUnknown(t T, p ReapsPorts) {
	part := lapsedPart(key(0))
	p.Seed(t, part)
	for what, k := range foreign(part.PartKey) {
		seen := part
		seen.PartKey = k
		refuses(t, "reap of an "+what, fault(reap(t, p, seen)), batch.ErrNotFound)
		refuses(t, "postponement of an "+what, fault(postpone(t, p, seen)), batch.ErrNotFound)
		refuses(t, "get after that", fault(p.Parts.Get(t.Context(), k)), batch.ErrNotFound)
	}
	unchangedPart(t, p.ClaimsPorts, "stored", part)
	b := begin(t, p.Batches, fullBatch())
	refuses(t, "deferral of an unknown batch", p.Reaps.Defer(t.Context(), b.Tenant, "batch_none", overdue, cut), batch.ErrNotFound)
	refuses(t, "deferral of another tenant's batch", p.Reaps.Defer(t.Context(), tenant(), b.ID, overdue, cut), batch.ErrNotFound)
	same(t, "batch", look(t, p.Batches, b), b)
}

func reapsInterrupted(t T, p ReapsPorts) {
	part, free := lapsedPart(key(0)), pendingPart(key(0))
	p.Seed(t, part)
	p.Seed(t, free)
	b := begin(t, p.Batches, fullBatch())
	interrupts(t, map[string]func(context.Context) error{
		"Reap":     func(ctx context.Context) error { return fault(p.Reaps.Reap(ctx, part, cut, overdue, cut)) },
		"Postpone": func(ctx context.Context) error { return fault(p.Reaps.Postpone(ctx, free, overdue, cut)) },
		"Defer":    func(ctx context.Context) error { return p.Reaps.Defer(ctx, b.Tenant, b.ID, overdue, cut) },
		"Parts":    func(ctx context.Context) error { return fault(p.Reaps.Parts(ctx, []batch.PartKey{part.PartKey})) },
		"Due":      func(ctx context.Context) error { return fault(p.Reaps.Due(ctx, batch.DueQuery{Limit: 1})) },
	})
	unchangedPart(t, p.ClaimsPorts, "held", part)
	unchangedPart(t, p.ClaimsPorts, "free", free)
	same(t, "batch", look(t, p.Batches, b), b)
}
