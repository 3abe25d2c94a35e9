// Package memory is every port of batch and access in process: for tests, for
// simulation, never for a binary that is deployed.
//
// A [Table] holds batches, parts, claims, files and keys; [Objects] holds
// objects and uploads; there are a [Queue], a [Workflow] and a [Model], and for the
// doors beside HTTP [Inputs] and [Letters]. Each is
// judged by its suite in storetest, like the adapter that it stands for.
// Nothing here starts a goroutine, and time is asked only where the port itself
// has time (a queue's visibility), so that all of it runs in a
// testing/synctest bubble. What goes in and comes out is copied: no caller sees
// another's slices.
//
// Every port calls its [Faults] before an operation takes effect and after it:
// a hook there can fail the call, lose its answer, hold it up, or end the
// "process". With gives a second view of the same store with faults of its own,
// which makes a second process.
//
// Every condition of a write is a named clause ([Clauses]). A store made with
// Options.Drop ignores one of them; the suites must then go red, and
// memory_test.go sees to it that they do for every clause there is.
package memory
