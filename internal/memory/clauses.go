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
	"C1.absent":       "bridge claim: no row of this correlation id",
	"C1.own":          "bridge claim: a row reserved under this token is its own lost write",
	"C1.own.reserved": "bridge claim: … only while it is reserved",
	"C1.own.token":    "bridge claim: … only under this token",
	"C2.reserved":     "bridge steal: state=reserved",
	"C2.seen":         "bridge steal: ver is the one that was read",
	"C2.stale":        "bridge steal: claimed_at<cut",
	"C2.own":          "bridge steal: a row reserved under this token is its own lost write",
	"C2.own.reserved": "bridge steal: … only while it is reserved",
	"C2.own.token":    "bridge steal: … only under this token",
	"C3.reserved":     "confirm: state=reserved",
	"C3.token":        "confirm: claim_token=token",
	"C3.own":          "confirm: a row confirmed under this token is its own lost write",
	"C3.own.token":    "confirm: … only under this token",
	"C3b.reserved":    "give back: state=reserved",
	"C3b.token":       "give back: claim_token=token",
	"C4.reserved":     "release: state=reserved",
	"C4.token":        "release: claim_token=token",

	"C5.pending":    "claim: state=pending",
	"C5.attempts":   "claim: attempts<max",
	"C5.suspect":    "claim: … or a suspect",
	"C5.own":        "claim: a part this token holds is its own lost write",
	"C5.own.leased": "claim: … only while it is leased",
	"C5.own.owner":  "claim: … only if the owner is this token",

	"C6.leased":     "steal: state=leased",
	"C6.seen":       "steal: ver is the one that was read",
	"C6.lapsed":     "steal: lease_until<cut",
	"C6.attempts":   "steal: attempts<max",
	"C6.suspect":    "steal: … or a suspect",
	"C6.own":        "steal: a part this token holds is its own lost write",
	"C6.own.leased": "steal: … only while it is leased",
	"C6.own.owner":  "steal: … only if the owner is this token",

	"C7.leased":     "heartbeat: state=leased",
	"C7.owner":      "heartbeat: owner=token",
	"C7s.leased":    "suspect: state=leased",
	"C7s.owner":     "suspect: owner=token",
	"C7s.processed": "suspect: processed_lines is the one that the worker knows",

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

	"C10.leased":     "hand over: state=leased",
	"C10.owner":      "hand over: owner=token",
	"C10.strike":     "hand over: a strike is taken back",
	"C10.strike.by":  "hand over: … only one that this token wrote",
	"C10f.leased":    "fail: state=leased",
	"C10f.owner":     "fail: owner=token",
	"C10f.strike":    "fail: a strike is taken back",
	"C10f.strike.by": "fail: … only one that this token wrote",

	"C11.leased":           "reap: state=leased",
	"C11.seen":             "reap: ver is the one that was read",
	"C11.lapsed":           "reap: lease_until<cut",
	"C11.own":              "reap: a part reaped from that version is its own lost write",
	"C11.own.pending":      "reap: … only while pending",
	"C11.own.ver":          "reap: … only with the next version",
	"C11.own.lapses":       "reap: … only with one lapse more",
	"postpone.pending":     "postpone: state=pending",
	"postpone.seen":        "postpone: ver is the one that was read",
	"postpone.own":         "postpone: a part postponed from that version is its own lost write",
	"postpone.own.pending": "postpone: … only while pending",
	"postpone.own.ver":     "postpone: … only with the next version",
	"postpone.own.resends": "postpone: … only with one resend more",
	"defer.open":           "defer: status in {validating, in_progress, finalizing}",

	"C12.seen":     "dead: ver is the one that was read",
	"C12.attempts": "dead: attempts>=max",
	"C12.suspect":  "dead: no suspect",
	"C12.state":    "dead: state in {pending, leased}",
	"C12.lapsed":   "dead: … and leased only with lease_until<cut",
	"C12.own":      "dead: a dead part is its own lost write, or as good",
	"C12.own.dead": "dead: … only if it is dead",

	"C14.dead":        "redrive: state=dead",
	"C14.seen":        "redrive: ver is the one that was read",
	"C14.status":      "redrive: the batch's status=in_progress",
	"C14.ending":      "redrive: the batch has no ending",
	"C14.own":         "redrive: a part redriven from that version is its own lost write",
	"C14.own.dead":    "redrive: … only if it was seen dead",
	"C14.own.pending": "redrive: … only while pending",
	"C14.own.ver":     "redrive: … only with the next version",

	"events.absent": "record event: none of this id",

	"C13.open":     "seal: state in {pending, leased, dead}",
	"C13.seen":     "seal: ver is the one that was read",
	"C13.own":      "seal: a part that is over is its own lost write, or as good",
	"C13.own.over": "seal: … only if it is over",

	"C15.create.absent":      "create: no batch of this id",
	"C15.create.own":         "create: a batch stored just so is its own lost write",
	"C15.create.own.equal":   "create: … only one stored just so",
	"C15.start.validating":   "start: status=validating",
	"C15.start.own":          "start: in_progress with equal numbers is its own lost write",
	"C15.start.own.status":   "start: … only while in_progress",
	"C15.start.own.parts":    "start: … only with the same parts",
	"C15.start.own.lines":    "start: … only with the same lines",
	"C15.start.own.model":    "start: … only with the same model",
	"C15.refuse.validating":  "refuse: status=validating",
	"C15.overrun.validating": "overrun: status=validating",
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

	"C15.advance.finalizing":     "advance: status=finalizing",
	"C15.advance.finalizer":      "advance: finalizer=token",
	"C15.advance.step":           "advance: the stored step is one below",
	"C15.advance.own":            "advance: this step under this token is its own lost write",
	"C15.advance.own.finalizing": "advance: … only while finalizing",
	"C15.advance.own.finalizer":  "advance: … only if the finalizer is this token",
	"C15.advance.own.step":       "advance: … only of this step",

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

	"keys.disable.tenant":    "disable key: it is the tenant's",
	"keys.disable.enabled":   "disable key: it isn't yet",
	"keys.rotate.tenant":     "rotate key: it is the tenant's",
	"keys.rotate.enabled":    "rotate key: it isn't disabled",
	"keys.rotate.unreplaced": "rotate key: it wasn't before",
	"keys.rotate.absent":     "rotate key: no record of the new hash",
	"keys.rotate.own":        "rotate key: replaced by this very key is its own lost write",
	"keys.rotate.own.by":     "rotate key: … only by a key of this id",
	"keys.rotate.own.equal":  "rotate key: … only with an equal record of it",
	"keys.touch.later":       "touch key: last_used<day",

	"tenants.absent":    "put tenant: no record of this name",
	"tenants.seen":      "put tenant: ver is the one that was read",
	"tenants.own":       "put tenant: an equal record of the next version is its own lost write",
	"tenants.own.equal": "put tenant: … only an equal one",

	"receipts.absent":             "intend: no receipt of this name",
	"receipts.own":                "intend: an equal receipt is its own lost write",
	"receipts.own.equal":          "intend: … only an equal one",
	"receipts.complete.open":      "complete: it isn't yet",
	"receipts.complete.own":       "complete: an equal completion is its own lost write",
	"receipts.complete.own.equal": "complete: … only an equal one",

	"sends.absent": "record send: none of this request",
	"sends.seen":   "record send: ver is the one that was read",
	"sends.own":    "record send: one of this id is its own lost write",
	"sends.own.id": "record send: … only one of this id",

	"U.create.absent":     "create upload: no upload of this id",
	"U.create.own":        "create upload: one as this call would write it is its own lost write",
	"U.create.own.equal":  "create upload: … only one that still is so",
	"U.part.pending":      "add part: status=pending",
	"U.part.absent":       "add part: no part of this id",
	"U.part.room":         "add part: fewer parts than the most",
	"U.part.own":          "add part: an equal part is its own lost write",
	"U.part.own.equal":    "add part: … only an equal one",
	"U.begin.pending":     "begin: status=pending",
	"U.begin.absent":      "begin: no multipart upload recorded",
	"U.begin.own":         "begin: the multipart upload recorded first stays, and is the answer",
	"U.begin.own.pending": "begin: … only while pending",
	"U.cancel.from":       "cancel upload: status in {pending, completing}",
	"U.cancel.own":        "cancel upload: a cancelled one is its own lost write",
	"U.start.pending":     "start completing: status=pending",
	"U.start.own":         "start completing: one past pending with the same hash is its own lost write",
	"U.start.own.status":  "start completing: … only completing, settled or completed",
	"U.start.own.hash":    "start completing: … only with the same hash",
	"U.settle.from":       "settle: status in {pending, completing}",
	"U.settle.hash":       "settle: no hash yet, or the same",
	"U.settle.own":        "settle: one past that with the same hash is success",
	"U.settle.own.status": "settle: … only settled or completed",
	"U.settle.own.hash":   "settle: … only with the same hash",
	"U.finish.settled":    "finish upload: status=settled",
	"U.finish.own":        "finish upload: a completed one is its own lost write",

	"objects.pin":        "open: the ETag is the one that was named",
	"uploads.open":       "complete: the upload is open",
	"uploads.pieces":     "complete: every piece is the one that was stored",
	"queue.visible":      "receive: the message is visible",
	"queue.hide":         "hide: the receipt is the last one",
	"queue.delete":       "delete: the receipt is the last one",
	"workflow.absent":    "start: no execution of this name",
	"workflow.own":       "start: one with the same input is this one",
	"workflow.own.job":   "start and finish: … only with the same input",
	"workflow.own.alive": "start: … only while it runs or has succeeded",
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
