// Package door is the two doors beside HTTP, as bridge.Door: [Drops] for objects
// that somebody puts into the inputs bucket, [Messages] for what other systems
// send. Both come by one queue, and [Router] tells them apart by their shape.
//
//	an event of S3 ─────> Drops:    in/<tenant>/<name> becomes the tenant's request,
//	                                if its drop is switched on
//	a message (schema) ─> Messages: says tenant, principal, input and the rest
//
// What a letter asks for is checked with the HTTP API's own code (package openai),
// so that one request is refused in the same words by whichever door it came.
// Both make the same request of the same object: its id as a file is derived from
// bucket, key and version, and so is the correlation id that an object has of its
// own (bridge.Object). A message may use that id as its own.
//
// Nothing is silent. What will never start leaves word where its sender looks:
//
//	an object    an error object beside its name in the results bucket, and an event
//	             of the batch that it would have been
//	a message    itself, in the dead letters, with code and reason
//	             (an event that names no tenant of ours, too)
//
// That comes before the letter is deleted, and may come twice: error object and
// event have names that follow from the object, and the dead letters may hold a
// message twice. A file that a folder is made of in S3, and a sidecar, start
// nothing and are logged; so does an event of S3 that tells of no new object.
//
// Trouble is never a refusal: the letter comes back. Delivered for the last time it has
// word left of it all the same (bridge.LastError), and a copy of it with the dead
// letters, whichever door it came by: it was no fault of its sender's.
//
// A message is judged by the schema that its senders are given
// (events/ingest-message.schema.json), at run time: one text says what is right,
// and nobody has to keep a second one, in Go, in step with it. That is the one
// thing for which a JSON Schema library is here, and only here.
package door
