// Package objects keeps objects in S3. It is the only importer of that client.
//
// Reads are pinned. [Objects.Open] asks for a range of the bytes that an ETag
// names and checks that the answer says it is that range: a store that ignores
// the range (one with versions did, when tried) would otherwise have a whole
// file replayed. Where the object was overwritten or deleted since and its
// version is known, that version is read instead. A stream that tears is taken
// up again where it stood.
//
// Everything written carries a CRC-32 that S3 checks. Objects of the results
// bucket carry the tag that its lifecycle rules select by (config.KeepTag).
package objects
