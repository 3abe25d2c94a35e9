package storetest

import (
	"fmt"
	"time"

	"holdfast/internal/batch"
)

var redriveCases = []Case[ReapsPorts]{
	{"redrive/brings a dead part back", redriveBack},
	{"redrive/not what isn't dead", redriveAlive},
	{"redrive/not another version than the one seen", redriveStale},
	{"redrive/only while its batch runs and nothing is decided", redriveClosed},
	{"redrive/again is its own lost write", redriveAgain},
	{"redrive/what else became of that version is no redrive", redriveOther},
	{"redrive/many make one write", redriveRace},
}

// deadPart is a dead part of a batch that runs, stored.
func deadPart(t T, p ReapsPorts) batch.Part {
	t.Helper()
	b := begin(t, p.Batches, fullBatch())
	value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(0)))(t, "start")
	part := declaredAs(spentParts()[0])
	part.Tenant, part.Batch = b.Tenant, b.ID
	p.Seed(t, part)
	return part
}

func redrive(t T, p ReapsPorts, seen batch.Part) (batch.Part, error) {
	return p.Deaths.Redrive(t.Context(), seen, overdue, cut)
}

// redrivenAs gives p, which is dead, as Redrive leaves it.
func redrivenAs(p batch.Part) batch.Part {
	p = releasedAs(p, overdue)
	p.Attempts, p.Resends, p.DeadAt = 0, 0, time.Time{}
	return p
}

func redriveBack(t T, p ReapsPorts) {
	part := deadPart(t, p)
	want := redrivenAs(part)
	same(t, "answer", value(redrive(t, p, part))(t, "redrive"), want)
	unchangedPart(t, p.ClaimsPorts, "stored", want)
	c := batch.Claim{PartKey: part.PartKey, Token: token()}
	same(t, "claimed", value(p.Claims.Claim(t.Context(), c, task, 1, until, cut))(t, "claim"), claimedAs(want, c.Token, task, until))
}

func redriveAlive(t T, p ReapsPorts) {
	for state, want := range map[batch.State]error{
		batch.Pending: batch.ErrAlive, batch.Leased: batch.ErrAlive, batch.Done: batch.ErrOver, batch.Sealed: batch.ErrOver,
	} {
		part := deadPart(t, p)
		part.State, part.Owner = state, token()
		p.Seed(t, part)
		for _, seen := range []batch.State{state, batch.Dead} {
			lie := part
			lie.State = seen
			refuses(t, fmt.Sprintf("redrive a part that is %s", state), fault(redrive(t, p, lie)), want)
			unchangedPart(t, p.ClaimsPorts, "stored", part)
		}
	}
}

func redriveStale(t T, p ReapsPorts) {
	part := deadPart(t, p)
	for _, ver := range []int64{part.Ver - 1, part.Ver + 1, 0} {
		seen := part
		seen.Ver = ver
		refuses(t, fmt.Sprintf("redrive at version %d, which is %d", ver, part.Ver), fault(redrive(t, p, seen)), batch.ErrStale)
		unchangedPart(t, p.ClaimsPorts, "stored", part)
	}
}

func redriveClosed(t T, p ReapsPorts) {
	batches := over(t, p)
	b := begin(t, p.Batches, fullBatch())
	batches["validating"] = b
	b = begin(t, p.Batches, fullBatch())
	value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(0)))(t, "start")
	batches["cancelling"] = value(p.Endings.End(t.Context(), b.Tenant, b.ID, batch.Cancelled, at(0)))(t, "end")
	b = begin(t, p.Batches, fullBatch())
	value(p.Batches.Start(t.Context(), b.Tenant, b.ID, numbers, at(0)))(t, "start")
	value(p.Endings.End(t.Context(), b.Tenant, b.ID, batch.Completed, at(0)))(t, "end")
	batches["finalizing"] = value(p.Endings.Finalize(t.Context(), b.Tenant, b.ID, token(), until, cut, at(0)))(t, "finalize")
	batches["gone"] = bareBatch()
	for name, b := range batches {
		part := deadPart(t, p)
		part.Tenant, part.Batch = b.Tenant, b.ID
		p.Seed(t, part)
		refuses(t, "redrive a part of a batch that is "+name, fault(redrive(t, p, part)), batch.ErrStatus)
		unchangedPart(t, p.ClaimsPorts, name, part)
		if name != "gone" {
			same(t, name, look(t, p.Batches, b), b)
		}
	}
}

// redriveAgain: also when the batch's end was decided in between.
func redriveAgain(t T, p ReapsPorts) {
	part := deadPart(t, p)
	first := value(redrive(t, p, part))(t, "redrive")
	same(t, "answer", value(redrive(t, p, part))(t, "redrive again"), first)
	value(p.Endings.End(t.Context(), part.Tenant, part.Batch, batch.Cancelled, at(0)))(t, "end")
	same(t, "answer", value(redrive(t, p, part))(t, "redrive again, too late"), first)
	unchangedPart(t, p.ClaimsPorts, "stored", first)
}

// redriveOther: the part has the version that follows the one that was seen, or
// is pending, but no redrive led there from it.
func redriveOther(t T, p ReapsPorts) {
	seen := deadPart(t, p)
	for name, is := range map[string]func(now, seen *batch.Part){
		"was pending when seen": func(_, seen *batch.Part) { seen.State = batch.Pending },
		"is held":               func(now, _ *batch.Part) { now.State = batch.Leased },
		"is further on":         func(now, _ *batch.Part) { now.Ver++ },
	} {
		now, seen := redrivenAs(seen), seen
		is(&now, &seen)
		p.Seed(t, now)
		refuses(t, "redrive a part that "+name, fault(redrive(t, p, seen)), batch.ErrAlive)
		unchangedPart(t, p.ClaimsPorts, name, now)
	}
}

func redriveRace(t T, p ReapsPorts) {
	part := deadPart(t, p)
	for _, err := range race(racers, func(int) error { return fault(redrive(t, p, part)) }) {
		succeeds(t, "redrive", err)
	}
	unchangedPart(t, p.ClaimsPorts, "stored", redrivenAs(part))
}
