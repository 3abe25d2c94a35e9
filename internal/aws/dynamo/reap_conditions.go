package dynamo

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"

	"holdfast/internal/batch"
)

// The rows of the design's table by which others than a worker write: C11 (reap),
// C12 (dead), C14 (redrive), and what they need beside those. As in conditions.go.

// c11Reap gives a lapsed part back. As with C6: lease_until < :cut keeps a live
// holder, ver=:seen every other write since, and state what came to its own end.
func c11Reap(k key, ver int64, cut, at time.Time) write {
	return write{
		when: is("state", batch.Leased).And(is("ver", ver), lapsed(cut)),
		then: lapse(released(k, at)),
	}
}

// postpone says that a pending part's message is sent again, by whoever made this
// write. ver=:seen keeps it to one of many, and state from a part that was claimed.
func postpone(k key, seen batch.Part, at time.Time) write {
	return write{
		when: is("state", batch.Pending).And(is("ver", seen.Ver)),
		then: due(k, at, next()).Set(name("resends"), value(seen.Resends+1)),
	}
}

// deferBatch moves the time at which a batch is looked at. No ver: nothing that
// anybody decides by is written, and the version names executions. A batch that is
// over must not come back into the index, which it would never leave.
func deferBatch(k key, at time.Time) write {
	return write{
		when: name("status").In(value(batch.Validating), value(batch.InProgress), value(batch.Finalizing)),
		then: expression.Set(name(attrDuePK), value(k.shard())).Set(name(attrDueAt), value(millis(at))),
	}
}

// c12Dead declares a part dead. What each conjunct stops:
//
//	ver       A claim checkpointed since the part was read: it has attempts again.
//	attempts  A caller with another setting, or none.
//	suspect   The part dies of its line, which would be blamed at the next claim.
//	state     What is over comes back as dead, and a batch never ends.
//	lapsed    A live holder's last attempt is under way, and would be thrown away.
func c12Dead(k key, seen batch.Part, maxAttempts int, cut, grace, now time.Time) write {
	then := next().
		Set(name(attrDuePK), value(k.deadShard())).
		Set(name(attrDueAt), value(millis(grace))).
		Remove(name("owner")).
		Remove(name("lease_until")).
		Remove(name("begun")).
		Set(name("state"), value(batch.Dead)).
		Set(name("dead_at"), value(millis(now)))
	if seen.State == batch.Leased { // it still is if it still has this version
		then = lapse(then)
	}
	return write{
		when: is("ver", seen.Ver).And(
			name("attempts").GreaterThanEqual(value(maxAttempts)),
			name("suspect").AttributeNotExists(),
			is("state", batch.Pending).Or(is("state", batch.Leased).And(lapsed(cut)))),
		then: then,
	}
}

// c14Redrive brings a dead part back, in one transaction with the check that its
// batch has use for it. ver=:seen stops this:
//
//  1. An operator looks at a dead part and asks for a redrive. It is redriven.
//  2. The part dies again, of something new that nobody has looked at.
//  3. The first call was only late, and lands.
func c14Redrive(k key, ver int64, at time.Time) write {
	return write{
		when: is("state", batch.Dead).And(is("ver", ver)),
		then: released(k, at).
			Set(name("attempts"), value(0)).
			Remove(name("resends")).
			Remove(name("dead_at")),
	}
}

// c14Open is that check. Without it:
//
//  1. A batch is cancelled; its dead part is about to be sealed.
//  2. The part is redriven: the seal is refused, a worker claims it, and lines are
//     sent on behalf of somebody who has cancelled.
func c14Open() expression.ConditionBuilder {
	return is("status", batch.InProgress).And(name("ending").AttributeNotExists())
}

// insertEvent tells of a thing once.
func insertEvent() expression.ConditionBuilder { return absent() }
