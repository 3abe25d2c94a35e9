package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// RunDeaths runs the suite of batch.Deaths.
func RunDeaths(t *testing.T, open func(T) ReapsPorts) {
	t.Helper()
	run(t, DeathsCases(), open)
}

// DeathsCases is the suite of batch.Deaths.
func DeathsCases() []Case[ReapsPorts] {
	return append([]Case[ReapsPorts]{
		{"declare/a part that has had its attempts", declareTakes},
		{"declare/never on a live holder, to the millisecond", declareLive},
		{"declare/never with a suspect, nor with attempts left", declareAlive},
		{"declare/not another version than the one seen", declareStale},
		{"declare/not what is over", declareOver},
		{"declare/again, or after another, is success", declareAgain},
		{"declare/many make one write", declareRace},
		{"declare/nobody claims, steals or writes to a dead part", declareHolder},
		{"declare/the last attempt's checkpoint, or death, never both", declareAgainstHolder},
		{"unknown and foreign parts", deathsUnknown},
		{"a context that is over", deathsInterrupted},
	}, redriveCases...)
}

// grace is when a part that dies has been dead for long enough.
var grace = cut.Add(time.Hour)

// spentParts are those that can be declared dead after three attempts.
func spentParts() []batch.Part {
	free, more, lapsed := pendingPart(key(0)), pendingPart(key(0)), lapsedPart(key(0))
	free.Attempts, free.Resends, more.Attempts, lapsed.Attempts = 3, 2, 100, 3
	return []batch.Part{free, more, lapsed}
}

func declare(t T, p ReapsPorts, seen batch.Part) (batch.Part, error) {
	return p.Deaths.Declare(t.Context(), seen, 3, cut, grace, cut)
}

// declaredAs gives p as Declare leaves it.
func declaredAs(p batch.Part) batch.Part {
	if p.State == batch.Leased {
		p = lapsedAs(p)
	}
	p = releasedAs(p, grace)
	p.State, p.DeadAt, p.LeaseUntil = batch.Dead, cut, time.Time{}
	return p
}

func declareTakes(t T, p ReapsPorts) {
	for _, part := range spentParts() {
		p.Seed(t, part)
		want := declaredAs(part)
		same(t, "answer", value(declare(t, p, part))(t, fmt.Sprintf("declare a %s part dead", part.State)), want)
		unchangedPart(t, p.ClaimsPorts, "stored", want)
	}
}

func declareLive(t T, p ReapsPorts) {
	for _, after := range []time.Duration{0, time.Millisecond, time.Hour} {
		part := lapsedPart(key(0))
		part.Attempts, part.LeaseUntil = 3, cut.Add(after)
		p.Seed(t, part)
		what := fmt.Sprintf("declare a part dead that is leased until %v after the cut", after)
		refusesHeld(t, what, fault(declare(t, p, part)), part)
		unchangedPart(t, p.ClaimsPorts, what, part)
	}
}

func declareAlive(t T, p ReapsPorts) {
	for _, part := range spentParts() {
		part.Suspect = batch.Suspect{Line: 1, Strikes: 2, By: token()}
		p.Seed(t, part)
		refuses(t, "declare a part dead that has a suspect", fault(declare(t, p, part)), batch.ErrAlive)
		unchangedPart(t, p.ClaimsPorts, "with a suspect", part)
		part.Suspect, part.Attempts = batch.Suspect{}, 2
		p.Seed(t, part)
		refuses(t, "declare a part dead that has an attempt left", fault(declare(t, p, part)), batch.ErrAlive)
		unchangedPart(t, p.ClaimsPorts, "with an attempt left", part)
	}
}

func declareStale(t T, p ReapsPorts) {
	for _, part := range spentParts() {
		p.Seed(t, part)
		for _, ver := range []int64{part.Ver - 1, part.Ver + 1, 0} {
			seen := part
			seen.Ver = ver
			refuses(t, fmt.Sprintf("declare dead at version %d, which is %d", ver, part.Ver), fault(declare(t, p, seen)), batch.ErrStale)
			unchangedPart(t, p.ClaimsPorts, "stored", part)
		}
	}
}

// declareOver: all is as it is in a part that can be declared dead, but for the
// state.
func declareOver(t T, p ReapsPorts) {
	for _, state := range []batch.State{batch.Done, batch.Sealed} {
		part := lapsedPart(key(0))
		part.State, part.Attempts = state, 3
		p.Seed(t, part)
		refuses(t, fmt.Sprintf("declare a part dead that is %s", state), fault(declare(t, p, part)), batch.ErrOver)
		unchangedPart(t, p.ClaimsPorts, "stored", part)
	}
}

func declareAgain(t T, p ReapsPorts) {
	for _, part := range spentParts() {
		p.Seed(t, part)
		first := value(declare(t, p, part))(t, "declare dead")
		for _, seen := range []batch.Part{part, first} {
			got := value(p.Deaths.Declare(t.Context(), seen, 3, cut.Add(time.Hour), grace.Add(time.Hour), cut.Add(time.Hour)))(t, "declare dead again")
			same(t, "answer", got, first)
			unchangedPart(t, p.ClaimsPorts, "stored", first)
		}
	}
}

func declareRace(t T, p ReapsPorts) {
	part := spentParts()[2]
	p.Seed(t, part)
	for _, err := range race(racers, func(int) error { return fault(declare(t, p, part)) }) {
		succeeds(t, "declare dead", err)
	}
	unchangedPart(t, p.ClaimsPorts, "stored", declaredAs(part))
}

func declareHolder(t T, p ReapsPorts) {
	part := spentParts()[2]
	p.Seed(t, part)
	dead := value(declare(t, p, part))(t, "declare dead")
	for name, do := range ownerWrites(p.ClaimsPorts, batch.Claim{PartKey: part.PartKey, Token: part.Owner}) {
		refuses(t, name+" of a dead part", do(t.Context()), lease.ErrLost)
	}
	c := batch.Claim{PartKey: part.PartKey, Token: token()}
	refuses(t, "claim", fault(p.Claims.Claim(t.Context(), c, task, 9, until, cut)), batch.ErrDead)
	refuses(t, "steal", fault(p.Steals.Steal(t.Context(), c, task, dead.Ver, 9, cut, until, cut)), batch.ErrDead)
	refuses(t, "reap", fault(reap(t, p, dead)), batch.ErrStale)
	refuses(t, "postpone", fault(postpone(t, p, dead)), batch.ErrStale)
	unchangedPart(t, p.ClaimsPorts, "stored", dead)
	want := sealedAs(dead)
	same(t, "sealed", value(p.Seals.Seal(t.Context(), part.PartKey, dead.Ver, cut))(t, "seal"), want, "LeaseUntil")
}

// declareAgainstHolder: the holder was only slow, and saves something in the last
// moment: then the part has attempts again.
func declareAgainstHolder(t T, p ReapsPorts) {
	for range 8 {
		part := spentParts()[2]
		p.Seed(t, part)
		errs := race(2, func(i int) error {
			if i == 0 {
				return p.Claims.Checkpoint(t.Context(), batch.Claim{PartKey: part.PartKey, Token: part.Owner}, next(), until, cut)
			}
			return fault(declare(t, p, part))
		})
		got := lookPart(t, p.Parts, part.PartKey)
		switch {
		case errs[0] == nil && errs[1] != nil:
			if got.State != batch.Leased || got.Processed != 4 || got.Attempts != 0 {
				t.Errorf("the checkpoint won, but: %+v", got)
			}
		case errs[1] == nil && errs[0] != nil:
			same(t, "the death won", got, declaredAs(part))
		default:
			t.Errorf("checkpoint: %v; death: %v", errs[0], errs[1])
		}
	}
}

func deathsUnknown(t T, p ReapsPorts) {
	part := spentParts()[0]
	p.Seed(t, part)
	for what, k := range foreign(part.PartKey) {
		seen := part
		seen.PartKey = k
		refuses(t, "death of an "+what, fault(declare(t, p, seen)), batch.ErrNotFound)
		seen.State = batch.Dead
		refuses(t, "redrive of an "+what, fault(redrive(t, p, seen)), batch.ErrNotFound)
		refuses(t, "get after that", fault(p.Parts.Get(t.Context(), k)), batch.ErrNotFound)
	}
	unchangedPart(t, p.ClaimsPorts, "stored", part)
}

func deathsInterrupted(t T, p ReapsPorts) {
	part, dead := spentParts()[0], deadPart(t, p)
	p.Seed(t, part)
	interrupts(t, map[string]func(context.Context) error{
		"Declare": func(ctx context.Context) error { return fault(p.Deaths.Declare(ctx, part, 3, cut, grace, cut)) },
		"Redrive": func(ctx context.Context) error { return fault(p.Deaths.Redrive(ctx, dead, overdue, cut)) },
	})
	unchangedPart(t, p.ClaimsPorts, "spent", part)
	unchangedPart(t, p.ClaimsPorts, "dead", dead)
}
