package dynamo

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// The rows C5-C10f of the design's table: the writes of those who work on a part.
// As in conditions.go.

// c5Claim takes a pending part. Attempts that ran out don't count while the part
// has a suspect: that line is dealt with first, whatever the attempts.
func c5Claim(k key, tok lease.Token, taskToken string, maxAttempts int, until time.Time) write {
	return write{
		when: is("state", batch.Pending).And(claimable(maxAttempts)),
		then: claimed(k, tok, taskToken, until),
	}
}

// c6Steal takes a part over from a holder who went without a word. Why so much:
//
//  1. Two thieves read a lapsed part. The first one's write moves ver and
//     lease_until, and the second is refused by either. ver alone stops this:
//     the first one is over and done with, has lapsed too, and what the second
//     would take is a part that it has not read.
//  2. The holder was only slow, and beats: lease_until moved on, and ver.
//  3. The holder was only slow, and gives the part back or finishes it: state.
//
// lease_until was judged when the part was read, by this very cut, skew margin
// included; it stands here so that no caller can forget to.
func c6Steal(k key, tok lease.Token, taskToken string, ver int64, maxAttempts int, cut, until time.Time) write {
	return write{
		when: is("state", batch.Leased).And(is("ver", ver), lapsed(cut), claimable(maxAttempts)),
		then: lapse(claimed(k, tok, taskToken, until)).
			Set(name("steals"), name("steals").Plus(value(1))),
	}
}

func claimable(maxAttempts int) expression.ConditionBuilder {
	return name("attempts").LessThan(value(maxAttempts)).Or(name("suspect").AttributeExists())
}

func lapsed(cut time.Time) expression.ConditionBuilder {
	return name("lease_until").LessThan(value(millis(cut)))
}

// lapse is u of a part whose holder went without a word: what it had begun may be
// sent again. u takes `begun` away, which an update reads before it does.
func lapse(u expression.UpdateBuilder) expression.UpdateBuilder {
	return u.
		Set(name("lapses"), name("lapses").Plus(value(1))).
		Set(name("repeats"), expression.Plus(name("repeats").IfNotExists(value(0)), name("begun").IfNotExists(value(0))))
}

// begun is u, with how many lines are sent and not committed; none is absent.
func begun(n int, u expression.UpdateBuilder) expression.UpdateBuilder {
	if n <= 0 {
		return u.Remove(name("begun"))
	}
	return u.Set(name("begun"), value(n))
}

// claimed makes a part tok's.
func claimed(k key, tok lease.Token, taskToken string, until time.Time) expression.UpdateBuilder {
	return due(k, until, next()).
		Set(name("state"), value(batch.Leased)).
		Set(name("owner"), value(tok)).
		Set(name("attempts"), name("attempts").Plus(value(1))).
		Set(name("lease_until"), value(millis(until))).
		Set(name("task_token"), value(taskToken)).
		Remove(name("resends")).
		Remove(name("begun"))
}

// owned is what every write of a part's holder asks for. Why both halves:
//
//  1. A worker stalls, its lease lapses, another claim replaces owner: the
//     stalled worker's write fails on owner.
//  2. A worker finishes; its own late heartbeat, sent before, arrives after:
//     owner is still its own, and only state keeps the part done.
func owned(tok lease.Token) expression.ConditionBuilder {
	return is("state", batch.Leased).And(is("owner", tok))
}

// c7Heartbeat prolongs a lease. due stays where it is: the index is refreshed by
// checkpoints, so that heartbeats cost one write and not three.
func c7Heartbeat(tok lease.Token, lines int, until time.Time) write {
	return write{
		when: owned(tok),
		then: begun(lines, next()).Set(name("lease_until"), value(millis(until))),
	}
}

// c7sSuspect says that a line is about to be sent alone. processed_lines=:seen
// stops this:
//
//  1. A worker writes suspect 7; the call fails, its fate unknown. It repeats
//     the call, is answered, sends line 7 and checkpoints it.
//  2. It writes suspect 8 and sends line 8.
//  3. The first call was only late. It lands: line 8 has no strike when it kills
//     the worker, and line 7, which is done, has one.
//
// It also says that a line is not alone in flight any more, and has no result: then
// s is what was there before, and that may be none.
func c7sSuspect(tok lease.Token, s batch.Suspect, processed int, until time.Time) write {
	return write{
		when: owned(tok).And(is("processed_lines", processed)),
		then: suspected(s, begun(1, next())).Set(name("lease_until"), value(millis(until))),
	}
}

func suspected(s batch.Suspect, u expression.UpdateBuilder) expression.UpdateBuilder {
	if s.None() {
		return u.Remove(name("suspect"))
	}
	return u.Set(name("suspect"), value(suspectItem(s)))
}

// c8Checkpoint makes a chunk count. processed_lines=:from stops this:
//
//  1. A worker writes checkpoint 0 → 100; the call fails, its fate unknown.
//  2. It repeats the call and is answered: 100 lines, one chunk.
//  3. The first call was only late. It lands, and would append the chunk again.
//
// The last one makes the part done (C9) in the same write: its condition is the
// stronger of the two, and the item, at its largest, is written once less.
func c8Checkpoint(k key, tok lease.Token, c batch.Checkpoint, until time.Time) write {
	then := due(k, until, next())
	if c.Last {
		then = notDue(next()).Set(name("state"), value(batch.Done))
	}
	return write{
		when: owned(tok).And(is("processed_lines", c.From)),
		then: begun(c.Begun, then).
			Set(name("processed_lines"), value(c.To)).
			Set(name("done_lines"), value([]byte(c.Done))).
			Set(name("chunks"), name("chunks").ListAppend(value([]chunkItem{chunkItem(c.Chunk)}))).
			Set(name("attempts"), value(0)).
			Set(name("lease_until"), value(millis(until))).
			Remove(name("suspect")),
	}
}

// c9Finish marks a part done: only with every line committed.
func c9Finish(tok lease.Token, lines int) write {
	return write{
		when: owned(tok).And(is("processed_lines", lines)),
		then: notDue(next()).Set(name("state"), value(batch.Done)),
	}
}

// c10HandOver gives a part back in good order. A strike that this claim wrote
// must be taken back, which the condition leaves to [c10TakeBack]: an update can't
// do one thing or another.
func c10HandOver(k key, tok lease.Token, attempts int, at time.Time) write {
	return write{
		when: owned(tok).And(notStruckBy(tok)),
		then: handedOver(attempts, released(k, at)),
	}
}

func handedOver(attempts int, u expression.UpdateBuilder) expression.UpdateBuilder {
	return u.Set(name("attempts"), value(attempts))
}

// c10fFail gives a part back after a failure; its attempts stay. As
// [c10HandOver].
func c10fFail(k key, tok lease.Token, reason string, at time.Time) write {
	return write{
		when: owned(tok).And(notStruckBy(tok)),
		then: failed(reason, released(k, at)),
	}
}

func failed(reason string, u expression.UpdateBuilder) expression.UpdateBuilder {
	return u.Set(name("last_error"), value(reason))
}

func notStruckBy(tok lease.Token) expression.ConditionBuilder {
	return expression.Not(is("suspect.by", tok))
}

// c10TakeBack makes a hand over or a failure, u, of a part that was just seen at
// this version, held by this claim and with a strike of its own, which it takes
// back. Whatever anybody wrote since moved ver.
func c10TakeBack(ver int64, s batch.Suspect, u expression.UpdateBuilder) write {
	return write{when: is("ver", ver), then: suspected(s.TakenBack(), u)}
}

// released makes a part pending, due at a time (zero: never).
func released(k key, at time.Time) expression.UpdateBuilder {
	u := due(k, at, next())
	if at.IsZero() {
		u = notDue(next())
	}
	return u.
		Set(name("state"), value(batch.Pending)).
		Remove(name("owner")).
		Remove(name("lease_until")).
		Remove(name("begun"))
}
