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
// A key is named by its [Key.ID], which opens nothing. It is made ([New]), ended
// ([Store]'s Disable) or replaced ([Rotate]), never deleted; what an admin key may
// give is [Grantable]. A change is known everywhere within 60 s, for that long a
// record is believed at most. Wrong keys cost a read each, and a source address that
// shows many is held up.
//
// What holds for a whole tenant is in its [Tenant] record: limits, and how
// batches start that come in by the S3 door. It needs none; [TenantCache] spares
// the table there.
//
// Whoever acts for others does so by [Decide], the replay rule: a key with
// batch_replay acts for the submitter of a batch that runs, and does nothing else. What
// the gateway calls then leaves a [Receipt]; a key that is refused again and again is
// held up by [Refusals].
//
// The package imports the standard library, and openai for the usage in a receipt.
package access
