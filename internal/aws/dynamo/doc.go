// Package dynamo keeps Holdfast's records in one DynamoDB table. It is the only
// importer of the DynamoDB client.
//
// [Open] gives a [Store], whose fields are the ports of batch and access. Every
// write is conditional. Each row of the design's table of conditions is one
// function in conditions.go, named for it (c5Claim is C5) and holding condition
// and effect side by side; they are built with the expression package, never
// written by hand. Where a condition fails DynamoDB answers with the item it
// found (ALL_OLD), and from that item alone the method decides which error it
// is, or that the write had been its own: the SDK repeats a call whose answer
// was lost, so that a write may meet itself.
//
// # Items
//
// items.go holds the items' structs, keys.go their keys. Times are numbers of
// milliseconds, bitmaps are binary, chunks a list of maps. Every item carries v;
// one higher than [batch.FormatVersion] is refused on reading ([ErrFormat]) and
// not touched by any write; what a newer program added to one that is read stays.
// Two sparse indexes: due (what the reaper should look at, spread over 16
// partitions) and tenant (a tenant's batches and files, by creation).
//
// Keys are joined with '#'. A tenant can't contain one (access.CheckTenant);
// what follows the tenant in a key is an id alone or of fixed shape, so that no
// id can reach into another tenant's or batch's items. Ids that no key could
// hold (empty or too long) are answered as not found without a call.
package dynamo
