// Package limits holds tenants to what they may use up, at the one place where every
// door ends: batch.Creator, before anything of a batch is recorded.
//
//	file_bytes       413 file_too_large            (the doors that see the bytes first say so, too)
//	running_batches  429 enqueued_limit_exceeded   retry-after
//	queued_lines     429 enqueued_limit_exceeded   retry-after
//
// Requests a minute are counted where requests come in (access.Rates).
//
// There is no counter. What a tenant has running is looked for anew at each create, in
// the tenant's batches themselves: a counter would be one item that every create and
// every end of a batch writes, and would drift. The price is that the limits are about
// right, and not exact:
//
//   - Creates that are under way at once don't see each other, and the index shows a
//     batch some moments after it was created. So many may be too many.
//   - A batch that is validating has no lines yet: they count once it is planned. A
//     batch is refused where the limit is reached already; the one that goes beyond it
//     is let in whole, and planning refuses nobody.
//   - Lines count as waiting until they are checkpointed.
//   - Of what was created longer ago than the longest window and a day, nothing is
//     looked for; nor beyond the newest 10,000 or so of that time.
//
// A tenant without these limits costs no look at all. One with them costs a query of
// the index, and a query of parts for each running batch only where the lines of all
// of them, done ones included, reach the limit.
package limits
