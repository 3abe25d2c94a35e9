package memory

import (
	"fmt"
	"maps"
	"slices"
)

// clauses is every condition that a store here evaluates, by name: the row of
// the design's table (or the port, where there is no row), then the conjunct.
// A name ending in ".own" is the recognition of one's own lost answer; below it
// are the conjuncts of that recognition.
var clauses = map[string]string{
	"C5.pending":    "claim: state=pending",
	"C5.attempts":   "claim: attempts<max",
	"C5.own":        "claim: a part this token holds is its own lost write",
	"C5.own.leased": "claim: … only while it is leased",
	"C5.own.owner":  "claim: … only if the owner is this token",

	"C7.leased": "heartbeat: state=leased",
	"C7.owner":  "heartbeat: owner=token",

	"C8.leased":    "checkpoint: state=leased",
	"C8.owner":     "checkpoint: owner=token",
	"C8.from":      "checkpoint: processed_lines=from",
	"C8.own":       "checkpoint: processed_lines=to under this token is its own lost write",
	"C8.own.owner": "checkpoint: … only if the owner is this token",
	"C8.own.to":    "checkpoint: … only if processed_lines=to",

	"C9.leased":    "finish: state=leased",
	"C9.owner":     "finish: owner=token",
	"C9.lines":     "finish: processed_lines=lines",
	"C9.own":       "finish: a part done by this token is its own lost write",
	"C9.own.done":  "finish: … only if it is done",
	"C9.own.owner": "finish: … only if the owner is this token",

	"C10.leased":  "hand over: state=leased",
	"C10.owner":   "hand over: owner=token",
	"C10f.leased": "fail: state=leased",
	"C10f.owner":  "fail: owner=token",

	"C15.create.absent":      "create: no batch of this id",
	"C15.start.validating":   "start: status=validating",
	"C15.start.own":          "start: in_progress with equal numbers is its own lost write",
	"C15.start.own.status":   "start: … only while in_progress",
	"C15.start.own.parts":    "start: … only with the same parts",
	"C15.start.own.lines":    "start: … only with the same lines",
	"C15.start.own.model":    "start: … only with the same model",
	"C15.refuse.validating":  "refuse: status=validating",
	"C15.refuse.own":         "refuse: a failed batch is its own lost write",
	"C15.refuse.own.failed":  "refuse: … only if it failed",
	"C15.end.from":           "end as cancelled or expired: status in {validating, in_progress}",
	"C15.end.in_progress":    "end as completed: status=in_progress",
	"C15.end.undecided":      "end: no ending yet",
	"C15.end.own":            "end: an equal ending is its own lost write",
	"C15.end.own.equal":      "end: … only an equal one",
	"C15.finalize.from":      "finalize: status=in_progress",
	"C15.finalize.decided":   "finalize: there is an ending",
	"C15.finalize.own":       "finalize: a finalizing batch this token holds is its own",
	"C15.finalize.own.state": "finalize: … only while finalizing",
	"C15.finalize.own.owner": "finalize: … only if the finalizer is this token",
	"C15.rob.finalizing":     "rob: status=finalizing",
	"C15.rob.lapsed":         "rob: finalizer_until<cut",
	"C15.hold.finalizing":    "hold: status=finalizing",
	"C15.hold.finalizer":     "hold: finalizer=token",

	"C16.finalizing":    "close: status=finalizing",
	"C16.finalizer":     "close: finalizer=token",
	"C16.own":           "close: a terminal batch with this finalizer is its own lost write",
	"C16.own.finalizer": "close: … only if the finalizer is this token",

	"C17.absent": "plan: no part of this number",

	"files.absent":    "put file: no record of this id",
	"files.own":       "put file: an equal record is its own lost write",
	"files.own.equal": "put file: … only an equal one",
	"keys.absent":     "put key: no record of this hash",
	"keys.own":        "put key: an equal record is its own lost write",
	"keys.own.equal":  "put key: … only an equal one",

	"objects.pin":      "open: the ETag is the one that was named",
	"uploads.open":     "complete: the upload is open",
	"uploads.pieces":   "complete: every piece is the one that was stored",
	"queue.visible":    "receive: the message is visible",
	"queue.hide":       "hide: the receipt is the last one",
	"queue.delete":     "delete: the receipt is the last one",
	"workflow.absent":  "start: no execution of this name",
	"workflow.own":     "start: one with the same input is this one",
	"workflow.own.job": "start: … only with the same input",
}

// Clauses are the names of all clauses, sorted.
func Clauses() []string { return slices.Sorted(maps.Keys(clauses)) }

// Describe says what a clause holds, in words; "" if there is none of the name.
func Describe(clause string) string { return clauses[clause] }

// rules evaluates clauses, but for the one that is dropped.
type rules struct{ drop string }

func dropping(name string) rules {
	if _, ok := clauses[name]; !ok && name != "" {
		panic(fmt.Sprintf("memory: no clause %q to drop", name))
	}
	return rules{name}
}

// must is one conjunct of a condition: dropped, it always holds.
func (r rules) must(name string, holds bool) bool {
	r.known(name)
	return holds || r.drop == name
}

// own is a recognition of one's own lost answer: dropped, it never happens.
func (r rules) own(name string, recognised bool) bool {
	r.known(name)
	return recognised && r.drop != name
}

func (r rules) known(name string) {
	if _, ok := clauses[name]; !ok {
		panic(fmt.Sprintf("memory: clause %q is not in the table", name))
	}
}
