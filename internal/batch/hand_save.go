package batch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// saving is one checkpoint on its way: first the object, then the pointer. Once
// cut it never changes, whatever becomes of its writes.
//
// Interleaving that this stops: C8 is sent and its answer lost; more results
// come; C8 is sent with a larger chunk; the late first one lands, then the
// second is refused, or its records count twice.
type saving struct {
	results []result // whoever puts the object has them
	seats   []*seat
	size    int64
	data    []byte // set once, when the object is first put
	step    Checkpoint
	object  Object
	stored  bool

	busy   bool
	nextAt time.Time
	since  time.Time // of the first failure of the step it is at
	pause  *backoff.ExponentialBackOff
}

// save cuts a checkpoint when one is due and takes the one under way a step
// further. One at a time: the next one's From is this one's To.
func (h *hand) save(now time.Time) {
	if h.phase != working || h.broken {
		return
	}
	if h.saving == nil && h.cutDue(now) {
		h.cut()
	}
	k := h.saving
	switch {
	case k == nil || k.busy:
	case now.Before(k.nextAt):
		h.s.at(now, k.nextAt)
	case !k.stored:
		h.store(k)
	case !h.writing:
		h.point(k, now)
	}
}

// cutDue says when results are worth a checkpoint: C of them, their bytes, their
// age, because nothing more will come, or because nothing can come without it. A
// chunk may have one line only, so a part has as many chunks as lines at most:
// that is what bounds the lines of a part (its item holds 400 KB).
func (h *hand) cutDue(now time.Time) bool {
	o := &h.s.r.o
	if len(h.results) == 0 {
		return false
	}
	last := h.flying == 0 && len(h.waiting) == 0 && (h.stopped != goingOn || h.allRead && h.queue.empty())
	if last || h.lone.left > 0 || len(h.results) >= o.CheckpointLines || h.resultSize >= o.CheckpointBytes ||
		h.s.full && h.resultSize >= o.CheckpointBytes/2 || h.s.stuck() {
		return true
	}
	if at := h.oldest.Add(o.CheckpointEvery); now.Before(at) {
		h.s.at(now, at)
		return false
	}
	return true
}

// cut makes all results that wait into a checkpoint.
func (h *hand) cut() {
	k := &saving{results: h.results, size: h.resultSize, pause: newPause(200*time.Millisecond, 5*time.Second)}
	h.results, h.resultSize = nil, 0
	slices.SortFunc(k.results, func(a, b result) int { return a.index - b.index })
	done := h.done.Clone()
	ok := 0
	for _, r := range k.results {
		done.Set(r.index)
		if r.ok {
			ok++
		}
	}
	n := len(k.results)
	k.seats = seatsOf(k.results)
	k.object = Object{
		Bucket: h.s.r.Results,
		// The token in the key: what a replaced worker still writes lies where
		// nothing points.
		Key: fmt.Sprintf("%s/parts/%s/%d/%s-%d.jsonl", h.claim.Tenant, h.claim.Batch, h.claim.N, h.claim.Token, h.chunks),
	}
	h.chunks++
	k.step = Checkpoint{From: h.processed, To: h.processed + n, Done: done, Chunk: Chunk{
		Key: k.object.Key, N: n, OK: ok, Err: n - ok, Bytes: k.size,
	}, Begun: h.begun - n, Last: h.processed+n == h.part.Lines}
	h.saving = k
}

// store writes the chunk object (step 5, first half). Requests go on meanwhile.
func (h *hand) store(k *saving) {
	k.busy = true
	h.s.start(func() func() {
		if k.data == nil {
			var buf bytes.Buffer
			buf.Grow(int(k.size))
			for i := range k.results {
				buf.Write(k.results[i].bytes)
				k.results[i].bytes = nil // not twice in memory
			}
			k.data = buf.Bytes()
			sum := sha256.Sum256(k.data)
			k.step.Chunk.Sum = hex.EncodeToString(sum[:])
		}
		err := h.s.call(h.ctx, func(ctx context.Context) error {
			_, err := h.s.r.Objects.Put(ctx, k.object, k.data)
			return err
		})
		return func() {
			k.busy = false
			now := time.Now()
			switch {
			case h.phase != working:
			case err == nil:
				k.stored = true
				k.since = time.Time{}
				k.pause.Reset()
			default:
				h.again(k, fmt.Errorf("write chunk: %w", err), now)
			}
		}
	})
}

// again lets k's step be repeated for half a lease. Results that can't be kept
// are worth nothing, and a claim that prolongs itself for them would never end:
// then the part is given back while the claim still can.
func (h *hand) again(k *saving, err error, now time.Time) {
	if k.since.IsZero() {
		k.since = now
	}
	if now.Sub(k.since) >= h.s.r.o.Lease/2 {
		h.broken = true
		h.fail(err)
		return
	}
	k.nextAt = now.Add(k.pause.NextBackOff())
	h.log.Warn("checkpoint step failed", "error", err)
}

// point makes the chunk count (step 5, second half: C8). After an error of
// unknown fate the identical step is repeated. If one had landed when the part is
// given back after all, its lines are done for the next owner; one that lands
// later is refused, because the claim is over.
func (h *hand) point(k *saving, now time.Time) {
	k.busy, h.writing = true, true
	until := now.Add(h.s.r.o.Lease)
	h.s.start(func() func() {
		err := h.s.call(h.ctx, func(ctx context.Context) error {
			return h.s.r.Claims.Checkpoint(ctx, h.claim, k.step, until, now)
		})
		return func() {
			k.busy, h.writing = false, false
			switch {
			case h.phase != working:
			case err == nil:
				h.leaseUntil = until
				h.committed(k)
			case lost(err):
				h.lose(err)
			default:
				h.again(k, fmt.Errorf("checkpoint: %w", err), time.Now())
			}
		}
	})
}

// committed opens the window again.
func (h *hand) committed(k *saving) {
	h.saving = nil
	h.done, h.processed = k.step.Done, k.step.To
	h.checkpointed, h.finished = true, k.step.Last
	h.begun -= len(k.seats)
	h.s.room.leave(k.seats...)
	h.acquit(len(k.seats))
	h.s.r.o.Observer.Add(MetricCompleted, float64(k.step.Chunk.OK))
	h.s.r.o.Observer.Add(MetricFailed, float64(k.step.Chunk.Err))
	h.s.outcome.add(Subject{h.claim.Tenant, h.claim.Batch}, len(k.seats))
}

// reason is err for the table: one line, at most 1,000 bytes, valid UTF-8.
func reason(err error) string {
	text := strings.ToValidUTF8(strings.Join(strings.Fields(err.Error()), " "), "?")
	for len(text) > 1000 {
		text = strings.ToValidUTF8(text[:1000], "")
	}
	return text
}
