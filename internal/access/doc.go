// Package access decides who is calling and what they may do.
//
// A caller shows a secret (`Authorization: Bearer hf_…`). Holdfast keeps only
// its SHA-256, in a [Key] record with the tenant the caller acts for, the
// principal whose requests its batches will be, and scopes. [Authenticate]
// turns a header into a [Caller]; [Cache] does the same and spares the table
// while a key is warm. Whatever is wrong with a key that was shown, the answer
// is [ErrInvalidKey] and nothing else: nobody learns whether a key was ever
// valid, expired or was disabled.
//
// Scopes imply nothing: each operation needs exactly one ([Caller.Require]).
// A key that only submits can't read results back; a key that only reads
// starts nothing; admin is for the management of keys and lends neither.
//
// The package imports the standard library alone.
package access
