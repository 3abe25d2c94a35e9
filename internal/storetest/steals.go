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

// StealsPorts are what the suite of batch.Steals needs.
type StealsPorts struct {
	ClaimsPorts
	Steals batch.Steals
}

// RunSteals runs the suite of batch.Steals.
func RunSteals(t *testing.T, open func(T) StealsPorts) {
	t.Helper()
	run(t, StealsCases(), open)
}

// StealsCases is the suite of batch.Steals.
func StealsCases() []Case[StealsPorts] {
	return []Case[StealsPorts]{
		{"steal/takes a lapsed part", stealTakes},
		{"steal/not before the margin is over, to the millisecond", stealMargin},
		{"steal/not of another version than the one read", stealStale},
		{"steal/not once the attempts are used up, but for a suspect", stealExhausted},
		{"steal/not what nobody holds", stealStates},
		{"steal/again is the thief's own lost write", stealAgain},
		{"steal/another's part is nobody's own", stealOwn},
		{"steal/one of many thieves wins", stealRace},
		{"steal/a heartbeat, a checkpoint or a steal, never two of one version", stealAgainstHolder},
		{"steal/the robbed holder writes nothing", stealRobbed},
		{"unknown and foreign parts", stealsUnknown},
		{"a context that is over", stealsInterrupted},
	}
}

// cut is the instant before which a lease must have ended, in the cases that
// steal, reap and declare parts dead. The margin is in it.
var cut = at(10 * time.Minute)

// lapsedPart is midPart whose holder's lease ended just before cut.
func lapsedPart(k batch.PartKey) batch.Part {
	p := midPart(k, token())
	p.LeaseUntil, p.Due = cut.Add(-time.Millisecond), at(time.Minute)
	return p
}

// stolenAs gives p, which has lapsed, as Steal leaves it.
func stolenAs(p batch.Part, tok lease.Token, task string, until time.Time) batch.Part {
	p = claimedAs(lapsedAs(p), tok, task, until)
	p.Steals++
	return p
}

// lapsedAs is p whose holder went without a word: what it had begun may be sent
// again.
func lapsedAs(p batch.Part) batch.Part {
	p.Lapses++
	p.Repeats, p.Begun = p.Repeats+p.Begun, 0
	return p
}

// robPart is a steal of p, as seen, with attempts enough.
func robPart(t T, p StealsPorts, part batch.Part, tok lease.Token) (batch.Part, error) {
	c := batch.Claim{PartKey: part.PartKey, Token: tok}
	return p.Steals.Steal(t.Context(), c, task, part.Ver, 9, cut, cut.Add(time.Hour), cut)
}

// refusesHeld demands a *HeldError that tells of p.
func refusesHeld(t T, what string, err error, p batch.Part) {
	t.Helper()
	refuses(t, what, err, lease.ErrHeld)
	if e, ok := errors.AsType[*batch.HeldError](err); !ok {
		t.Errorf("%s: %v is no *HeldError", what, err)
	} else if want := (batch.HeldError{Until: stored(p.LeaseUntil), Ver: p.Ver, Owner: p.Owner, Begun: p.Begun}); !e.Until.Equal(want.Until) || e.Ver != want.Ver || e.Owner != want.Owner || e.Begun != want.Begun {
		t.Errorf("%s: held as %+v, want %+v", what, *e, want)
	}
}

func stealTakes(t T, p StealsPorts) {
	for _, ago := range []time.Duration{time.Millisecond, time.Hour} {
		for _, task := range []string{task, "", awkward} {
			part := lapsedPart(key(0))
			part.LeaseUntil, part.Resends = cut.Add(-ago), 3
			p.Seed(t, part)
			c := batch.Claim{PartKey: part.PartKey, Token: token()}
			want := stolenAs(part, c.Token, task, cut.Add(time.Hour))
			got := value(p.Steals.Steal(t.Context(), c, task, part.Ver, part.Attempts+1, cut, cut.Add(time.Hour), cut))(t, "steal")
			same(t, "answer", got, want)
			unchangedPart(t, p.ClaimsPorts, "stored", want)
		}
	}
}

func stealMargin(t T, p StealsPorts) {
	for _, after := range []time.Duration{0, time.Millisecond, time.Hour} {
		part := lapsedPart(key(0))
		part.LeaseUntil = cut.Add(after)
		p.Seed(t, part)
		what := fmt.Sprintf("steal of a part leased until %v after the cut", after)
		refusesHeld(t, what, fault(robPart(t, p, part, token())), part)
		unchangedPart(t, p.ClaimsPorts, what, part)
	}
}

// stealStale: of two thieves the first one's work is done and has lapsed too when
// the second one, stalled since it read the part, comes to write.
func stealStale(t T, p StealsPorts) {
	part := lapsedPart(key(0))
	p.Seed(t, part)
	for _, ver := range []int64{part.Ver - 1, part.Ver + 1, 0} {
		other := part
		other.Ver = ver
		what := fmt.Sprintf("steal at version %d of a part at %d", ver, part.Ver)
		refusesHeld(t, what, fault(robPart(t, p, other, token())), part)
		unchangedPart(t, p.ClaimsPorts, what, part)
	}
}

func stealExhausted(t T, p StealsPorts) {
	for _, spent := range []int{3, 4, 100} {
		part := lapsedPart(key(0))
		part.Attempts = spent
		p.Seed(t, part)
		try := func() (batch.Part, error) {
			return p.Steals.Steal(t.Context(), batch.Claim{PartKey: part.PartKey, Token: "thief"}, task, part.Ver, 3, cut, until, cut)
		}
		refuses(t, fmt.Sprintf("steal after %d attempts of 3", spent), fault(try()), batch.ErrExhausted)
		unchangedPart(t, p.ClaimsPorts, "stored", part)

		part.Suspect = batch.Suspect{Line: 1, Strikes: 1, By: part.Owner}
		p.Seed(t, part)
		want := stolenAs(part, "thief", task, until)
		same(t, "answer", value(try())(t, "steal with a suspect"), want)
		unchangedPart(t, p.ClaimsPorts, "with a suspect", want)
	}
}

// stealStates: all is as it is in a part that can be stolen, but for the state.
func stealStates(t T, p StealsPorts) {
	for state, want := range map[batch.State]error{
		batch.Pending: batch.ErrStale, batch.Done: batch.ErrOver, batch.Sealed: batch.ErrOver, batch.Dead: batch.ErrDead,
	} {
		part := lapsedPart(key(0))
		part.State = state
		p.Seed(t, part)
		for _, tok := range []lease.Token{token(), part.Owner} {
			refuses(t, fmt.Sprintf("steal a part that is %s", state), fault(robPart(t, p, part, tok)), want)
			unchangedPart(t, p.ClaimsPorts, "stored", part)
		}
	}
}

func stealAgain(t T, p StealsPorts) {
	part := lapsedPart(key(0))
	p.Seed(t, part)
	tok := token()
	first := value(robPart(t, p, part, tok))(t, "steal")
	for range 2 {
		same(t, "answer", value(robPart(t, p, part, tok))(t, "steal again"), first)
		unchangedPart(t, p.ClaimsPorts, "stored", first)
	}
}

func stealOwn(t T, p StealsPorts) {
	part := lapsedPart(key(0))
	p.Seed(t, part)
	first := value(robPart(t, p, part, token()))(t, "steal")
	refusesHeld(t, "steal by another", fault(robPart(t, p, part, token())), first)
	unchangedPart(t, p.ClaimsPorts, "stored", first)
}

func stealRace(t T, p StealsPorts) {
	part := lapsedPart(key(0))
	p.Seed(t, part)
	toks := make([]lease.Token, racers)
	for i := range toks {
		toks[i] = token()
	}
	won := winner(t, race(racers, func(i int) error { return fault(robPart(t, p, part, toks[i])) }), lease.ErrHeld)
	unchangedPart(t, p.ClaimsPorts, "stored", stolenAs(part, toks[won], task, cut.Add(time.Hour)))
}

// stealAgainstHolder: the holder was only slow. Either it writes first, and then
// the thief has read another version; or the thief does, and it is replaced.
func stealAgainstHolder(t T, p StealsPorts) {
	for n := range 8 {
		part := lapsedPart(key(0))
		p.Seed(t, part)
		c := batch.Claim{PartKey: part.PartKey, Token: part.Owner}
		errs := race(2, func(i int) error {
			switch {
			case i == 1:
				return fault(robPart(t, p, part, token()))
			case n%2 == 0:
				return p.Claims.Heartbeat(t.Context(), c, 0, cut.Add(time.Hour), cut)
			default:
				return p.Claims.Checkpoint(t.Context(), c, next(), cut.Add(time.Hour), cut)
			}
		})
		got := lookPart(t, p.Parts, part.PartKey)
		switch {
		case errs[0] == nil && errors.Is(errs[1], lease.ErrHeld):
			if got.Owner != c.Token || got.Steals != part.Steals {
				t.Errorf("the holder won, but: %+v", got)
			}
		case errs[1] == nil && errors.Is(errs[0], lease.ErrLost):
			if got.Owner == c.Token || got.Steals != part.Steals+1 || got.Processed != part.Processed {
				t.Errorf("the thief won, but: %+v", got)
			}
		default:
			t.Errorf("holder: %v; thief: %v", errs[0], errs[1])
		}
	}
}

func stealRobbed(t T, p StealsPorts) {
	part := lapsedPart(key(0))
	p.Seed(t, part)
	stolen := value(robPart(t, p, part, token()))(t, "steal")
	for name, do := range ownerWrites(p.ClaimsPorts, batch.Claim{PartKey: part.PartKey, Token: part.Owner}) {
		refuses(t, name+" of a stolen part", do(t.Context()), lease.ErrLost)
		unchangedPart(t, p.ClaimsPorts, "after "+name, stolen)
	}
	succeeds(t, "checkpoint by the thief", p.Claims.Checkpoint(t.Context(), batch.Claim{PartKey: part.PartKey, Token: stolen.Owner}, next(), until, cut))
}

func stealsUnknown(t T, p StealsPorts) {
	part := lapsedPart(key(0))
	p.Seed(t, part)
	for what, k := range foreign(part.PartKey) {
		other := part
		other.PartKey = k
		refuses(t, "steal of an "+what, fault(robPart(t, p, other, token())), batch.ErrNotFound)
		refuses(t, "get after that", fault(p.Parts.Get(t.Context(), k)), batch.ErrNotFound)
	}
	unchangedPart(t, p.ClaimsPorts, "stored", part)
}

// foreign are keys next to k that nothing is stored under.
func foreign(k batch.PartKey) map[string]batch.PartKey {
	return map[string]batch.PartKey{
		"unknown part":          {Tenant: k.Tenant, Batch: k.Batch, N: k.N + 1},
		"unknown batch":         {Tenant: k.Tenant, Batch: "batch_none", N: k.N},
		"another tenant's part": {Tenant: tenant(), Batch: k.Batch, N: k.N},
	}
}

func stealsInterrupted(t T, p StealsPorts) {
	part := lapsedPart(key(0))
	p.Seed(t, part)
	interrupts(t, map[string]func(context.Context) error{
		"Steal": func(ctx context.Context) error {
			return fault(p.Steals.Steal(ctx, batch.Claim{PartKey: part.PartKey, Token: token()}, task, part.Ver, 9, cut, until, cut))
		},
	})
	unchangedPart(t, p.ClaimsPorts, "stored", part)
}
