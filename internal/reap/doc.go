// Package reap finds what nobody looks after any more and sets it going again:
// parts whose workers died, messages that were lost, batches past their window,
// executions and finishers that fell, claims whose owners never submitted.
//
// A reaper decides nothing. The due index tells it where to look; what it does
// there is one conditional write on the item itself (C2, C11, C12, C13, C15), which is
// refused if anybody was faster. So two reapers at once, one that comes late, and
// one that dies anywhere do no harm, and none for an hour costs an hour: no
// result, no line.
//
//	part leased, its lease lapsed     C11: pending, and its message is sent again
//	... and out of attempts           C12: dead, unless a line is suspected
//	part pending, its message unseen  the message is sent again, less often each time
//	... and out of attempts           C12
//	... of a batch that is over       C13: a planning that died left it behind
//	part dead, its grace over         C13: its lines end as part_dead
//	batch past its window             C15: it ends as expired
//	... validating or in progress, and no execution runs
//	                                  another one is started
//	... its parts over or its ending decided, and nobody finishes it
//	                                  an execution is started that only does that
//	dead letter                       its part is still to be run: the message is sent anew
//	claim on a correlation id, stale  C2: stolen, and the request it holds submitted
//
// What else is due (files, uploads) is left alone.
//
// Messages and events are hints. Whoever dies between a write and a message finds
// the part due again a few minutes later; whoever dies after a message sends it
// once more. Copies do no harm.
package reap
