// Package batch is Holdfast's domain: a batch, its parts and lines, and the
// protocol that brings every accepted line to exactly one result.
//
// A [Creator] records a batch and starts its workflow. The [Planner] reads the
// input once, strictly, and cuts it into parts. A [Runner] claims a part,
// replays its lines against a [Model] as the submitter, and checkpoints chunks
// of results out of order. The [Finisher] merges the chunks into result files
// in input order and closes the batch.
//
// The table behind [Batches], [Parts] and [Claims] is the truth. Queues,
// workflow and task tokens are hints: losing one costs time, never a result.
// Every write names the state it leaves; protocol.md in this folder maps each
// step to its function, its condition (C1-C17 of the design) and the test that
// goes red without it.
//
// The package imports the standard library, lease, openai and a short list
// held by its own test; it never sees AWS.
package batch
