// Package bridge turns a request that may arrive any number of times, by any
// door, into one job.
//
// Whatever names the request for its sender is its correlation id: the
// Idempotency-Key header, an object's bucket, key and version, a message's
// correlation_id. [Bridge.Submit] claims the id (C1: one insert decides), has a
// [Submitter] start the job, and confirms the row (C3). A confirmed row is never
// claimable again. A submit that was definitely refused releases the row (C4),
// so that the id can be used again; one of unknown fate leaves it reserved. A
// reservation older than ClaimStale belongs to somebody who died, and is stolen
// through ver (C2). The row holds the whole request: whoever steals it needs
// nobody to send it again. So [Bridge.Resume], which the reaper calls, ends what
// was begun for somebody who is gone.
//
// The claim only spares work. What makes a slow owner harmless that was robbed
// while it slept is that [BatchID] derives the job's id from tenant and
// correlation id, so that both start the same job.
//
// Official clients send no key when they send a create again, but count it:
// [Resends] remembers, by what was asked for, which id the last send was given.
//
// The package imports the standard library and lease. Its folder batches is the
// Submitter that starts Holdfast's own batches.
package bridge
