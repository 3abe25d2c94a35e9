package dynamo

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/lease"
)

// One function per row of the design's table of conditions, in its order. Each
// says what must hold and what the write then does. Only rows that something
// calls are here.

// c1Claim claims a correlation id.
func c1Claim() expression.ConditionBuilder { return absent() }

// c2Steal takes a stale reservation over. Why all three:
//
//  1. Two thieves read the same stale row. The first one's write moves ver, and the
//     second is refused, also when its clock makes everything look stale.
//  2. The owner was only slow and confirms before the thief writes: ver moved, and
//     should a thief read the row after that, only state keeps it from being
//     claimed again.
//  3. claimed_at was judged when the row was read, by this very cut: it stands here
//     so that no caller can forget to.
func c2Steal(k key, seen int64, cut time.Time, tok lease.Token, until, now time.Time) write {
	return write{
		when: is("state", bridge.Reserved).And(is("ver", seen), name("claimed_at").LessThan(value(millis(cut)))),
		then: due(k, until, next()).
			Set(name("claim_token"), value(tok)).
			Set(name("claimed_at"), value(millis(now))).
			Remove(name("given_back")).
			Remove(name("ttl")), // rows of older releases have one
	}
}

// reserved is what every write of a claim's owner asks for: that it wasn't robbed,
// and that nobody confirmed in its name.
func reserved(tok lease.Token) expression.ConditionBuilder {
	return is("state", bridge.Reserved).And(is("claim_token", tok))
}

// c3Confirm makes a row final. Only now may it be forgotten: a reservation that a TTL
// took away would take with it that anything was asked for.
func c3Confirm(tok lease.Token, job string, expires time.Time) write {
	return write{
		when: reserved(tok),
		then: notDue(next()).
			Set(name("state"), value(bridge.Confirmed)).
			Set(name("job"), value(job)).
			Set(name("ttl"), value(seconds(expires))),
	}
}

// c3bGiveBack makes a reservation stale before its time: its owner lives, submits no
// more and doesn't know what came of it. The gap that the token closes:
//
//  1. An owner stalls in its submit, and is robbed.
//  2. It wakes, and its submit ends in trouble.
//  3. Giving back what is the thief's now would let a third submit beside the thief.
func c3bGiveBack(tok lease.Token, claimed time.Time) write {
	return write{
		when: reserved(tok),
		then: next().Set(name("claimed_at"), value(millis(claimed))).Set(name("given_back"), value(true)),
	}
}

// c4Release deletes a row whose submit was refused. The gap that state closes:
//
//  1. An owner is refused, and is about to release.
//  2. Somebody finds that the job exists after all and confirms in its name.
//  3. The release must not make a used id free again.
func c4Release(tok lease.Token) expression.ConditionBuilder { return reserved(tok) }

// C5-C10f, the writes of those who work on a part, are in claim_conditions.go.

// c13Seal closes an open part, whoever holds it. ver=:seen stops this:
//
//  1. The finisher reads a part of 3 chunks whose lease has lapsed.
//  2. Its holder, only slow, checkpoints a fourth, or another claim begins.
//  3. The finisher would seal what it has not judged, and merge 3 chunks of 4.
//
// Refused, it reads the part again. Since owner goes, the holder's next write is
// refused on owner and on state.
func c13Seal(ver int64) write {
	return write{
		when: name("state").In(value(batch.Pending), value(batch.Leased), value(batch.Dead)).And(is("ver", ver)),
		then: notDue(next()).
			Set(name("state"), value(batch.Sealed)).
			Remove(name("owner")),
	}
}

// c15Create inserts a batch.
func c15Create() expression.ConditionBuilder { return absent() }

// c15Start moves a validated batch on.
func c15Start(s batch.Started, now time.Time) write {
	return write{
		when: is("status", batch.Validating),
		then: next().
			Set(name("status"), value(batch.InProgress)).
			Set(name("in_progress_at"), value(millis(now))).
			Set(name("parts"), value(s.Parts)).
			Set(name("lines"), value(s.Lines)).
			Set(name("model"), value(s.Model)),
	}
}

// c15Refuse ends a batch whose input won't do.
func c15Refuse(errs []errorItem, now time.Time) write {
	return write{
		when: is("status", batch.Validating),
		then: notDue(next()).
			Set(name("status"), value(batch.Failed)).
			Set(name("ended_at"), value(millis(now))).
			Set(name("errors"), value(errs)),
	}
}

// c15Overrun counts a planning that ran out of time.
func c15Overrun() write {
	return write{
		when: is("status", batch.Validating),
		then: next().Add(name("overruns"), value(1)),
	}
}

// c15End decides how a batch ends, once: completed only from in_progress, the
// others from before that too.
func c15End(ending batch.Status, now time.Time) write {
	from := is("status", batch.InProgress)
	if ending != batch.Completed {
		from = name("status").In(value(batch.Validating), value(batch.InProgress))
	}
	return write{
		when: from.And(name("ending").AttributeNotExists()),
		then: next().
			Set(name("ending"), value(ending)).
			Set(name("ending_at"), value(millis(now))),
	}
}

// c15Finalize takes the right to assemble: the first time, or from a holder that
// lapsed. C6 compares the ver that a thief has read; here reading and robbing are
// one write, so that nothing can come between them:
//
//  1. Two thieves see a lapsed holder. The first one's write moves
//     finalizer_until, and the second finds a live holder.
//  2. The holder was only slow and prolongs, or closes: a thief's write finds
//     finalizer_until moved, or the status terminal.
func c15Finalize(tok lease.Token, until, cut, now time.Time) write {
	return write{
		when: is("status", batch.InProgress).And(name("ending").AttributeExists()).
			Or(is("status", batch.Finalizing).And(name("finalizer_until").LessThan(value(millis(cut))))),
		then: next().
			Set(name("status"), value(batch.Finalizing)).
			Set(name("finalizing_at"), name("finalizing_at").IfNotExists(value(millis(now)))).
			Set(name("finalizer"), value(tok)).
			Set(name("finalizer_until"), value(millis(until))),
	}
}

// c15Hold prolongs that right.
func c15Hold(tok lease.Token, until time.Time) write {
	return write{
		when: finalizing(tok),
		then: next().Set(name("finalizer_until"), value(millis(until))),
	}
}

// c15Advance records how far the results are assembled. What the step stops:
//
//  1. A finisher records step 7; the call fails, its fate unknown.
//  2. It repeats the call, goes on, records step 8, and deletes the tails that step
//     7 named.
//  3. The first call was only late. It lands, and whoever goes on from step 7 finds
//     no tails.
//
// Who was robbed can't record anything: what it would name (uploads of its own)
// is not what the thief goes on with.
func c15Advance(tok lease.Token, p batch.Progress, until time.Time) write {
	before := is("progress.step", p.Step-1)
	if p.Step <= 1 {
		before = name("progress").AttributeNotExists()
	}
	return write{
		when: finalizing(tok).And(before),
		then: next().
			Set(name("progress"), value(newProgressItem(p))).
			Set(name("finalizer_until"), value(millis(until))),
	}
}

// c16Close makes the ending the status. The ending is taken from the item
// itself, so that nobody has to read it first.
func c16Close(tok lease.Token, c batch.Closed, now time.Time) write {
	u := notDue(next()).
		Set(name("status"), name("ending")).
		Set(name("ended_at"), value(millis(now))).
		Set(name("counts"), value(countsItem(c.Counts))).
		Set(name("usage"), value(newUsageItem(c.Usage))).
		Set(name("troubles"), value(troublesItem(c.Troubles)))
	if c.OutputFileID != "" {
		u = u.Set(name("output_file_id"), value(c.OutputFileID))
	}
	if c.ErrorFileID != "" {
		u = u.Set(name("error_file_id"), value(c.ErrorFileID))
	}
	return write{when: finalizing(tok), then: u}
}

// c17Plan inserts a part.
func c17Plan() expression.ConditionBuilder { return absent() }

// insertFile and deleteFile are writes that have no number in the table
// ("every other write").

func insertFile() expression.ConditionBuilder { return absent() }

// deleteFile leaves of a file its id and when it was created, out of both
// indexes, until TTL takes it: a client that deletes what it lists goes on from
// an id that is deleted by then.
func deleteFile(now time.Time) write {
	return write{
		when: name("deleted_at").AttributeNotExists(),
		then: expression.Set(name("deleted_at"), value(millis(now))).
			Set(name("ttl"), value(now.Add(fileGrace).Unix())).
			Remove(name("filename")).Remove(name("object")).
			Remove(name(attrTenantPK)).Remove(name(attrTenantSK)).
			Remove(name(attrDuePK)).Remove(name(attrDueAt)),
	}
}

// insertSend and replaceSend record the last send of a request. The second one
// leaves what it doesn't know of the item in place.

func insertSend() expression.ConditionBuilder { return absent() }

func replaceSend(i sendItem, seen int64) write {
	return write{
		when: is("ver", seen),
		then: next().
			Set(name("batch"), value(i.ID)).
			Set(name("created_at"), value(i.Created)).
			Set(name("ttl"), value(i.TTL)),
	}
}

// What the rows are made of.

func name(n string) expression.NameBuilder { return expression.Name(n) }

func value(v any) expression.ValueBuilder { return expression.Value(v) }

func is(n string, v any) expression.ConditionBuilder { return name(n).Equal(value(v)) }

func absent() expression.ConditionBuilder { return name(attrPK).AttributeNotExists() }

// readable is when, and that this program can read the item: part of every write
// to one that exists (and holds for no other). A condition on attributes alone may
// well hold for an item whose meaning is another:
//
//  1. A part was written by a newer program, and this one was deployed again.
//  2. A claim (C5) holds: state is pending. Its answer can't be read, so that
//     nobody runs the part, and the lease must lapse.
//  3. Three of those, and the part has had its attempts without a line being sent.
func readable(when expression.ConditionBuilder) expression.ConditionBuilder {
	return when.And(name("v").LessThanEqual(value(batch.FormatVersion)))
}

func finalizing(tok lease.Token) expression.ConditionBuilder {
	return is("status", batch.Finalizing).And(is("finalizer", tok))
}

// next begins every update: ver is one higher at every write.
func next() expression.UpdateBuilder {
	return expression.Set(name("ver"), name("ver").Plus(value(1)))
}

// due puts the item into the due index at a time, or moves it there.
func due(k key, at time.Time, u expression.UpdateBuilder) expression.UpdateBuilder {
	return u.Set(name(attrDuePK), value(k.shard())).Set(name(attrDueAt), value(millis(at)))
}

// notDue takes the item out of the due index.
func notDue(u expression.UpdateBuilder) expression.UpdateBuilder {
	return u.Remove(name(attrDuePK)).Remove(name(attrDueAt))
}
