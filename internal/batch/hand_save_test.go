package batch_test

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// Promise 2: while nothing can be committed, no more than C + K lines are begun, K
// being what may be in flight.
func TestWindow(t *testing.T) {
	for _, op := range []string{"Objects.Put", "Claims.Checkpoint"} {
		t.Run(op, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, 500, 500, after(time.Second))
				f := memory.NewFaults()
				f.Before(op, 0, memory.Fail(nil))
				done := r.begin(f, life)
				r.pass(50 * time.Second)
				if n := len(r.model.Calls()); n != 132 {
					t.Errorf("%d lines sent while nothing is committed, want C + K = 132", n)
				}
				<-done
			})
		})
	}
}

// Requests go on while a checkpoint is written, for as long as the window lets
// them.
func TestRequestsGoOnDuringCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 500, 500, after(time.Second))
		r.opts.Concurrency = 4
		r.opts.CheckpointEvery = 2 * time.Second
		f := memory.NewFaults()
		gate := memory.NewGate()
		f.Before("Objects.Put", 1, gate.Wait)
		done := r.begin(f, life)
		<-gate.Reached()
		// At this instant of virtual time replies still come and lines are still sent,
		// in an order of the scheduler's.
		synctest.Wait()
		before := len(r.model.Calls())
		r.pass(5500 * time.Millisecond)
		if n := len(r.model.Calls()) - before; n < 5*4 {
			t.Errorf("%d lines sent in the 5 s that the put took, want 4 a second", n)
		}
		gate.Open()
		expect(t, <-done, true, "done")
		r.conserved()
	})
}

// Promise 8: large replies fill the window in bytes long before the one in
// lines.
func TestWindowInBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		big := []byte(`"` + strings.Repeat("x", 100<<10) + `"`)
		r := newRig(t, 200, 200, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			return batch.Reply{Status: 200, Body: big}, memory.Wait(ctx, time.Second)
		})
		r.opts.CheckpointBytes = 400 << 10
		r.opts.Concurrency = 4
		f := memory.NewFaults()
		for n := 3; n <= 8; n++ {
			f.Before("Objects.Put", n, memory.Fail(nil))
		}
		gate := memory.NewGate()
		f.Before("Objects.Put", 9, gate.Wait)
		done := r.begin(f, life)
		<-gate.Reached()
		r.pass(5 * time.Second)
		// Records of a little more than 100 KiB in 800 KiB, and one that is let over.
		if n := len(r.model.Calls()) - r.part(0).Processed; n > 8 || n < 7 {
			t.Errorf("%d lines of 100 KiB in the window, want 7 or 8", n)
		}
		gate.Open()
		expect(t, <-done, true, "done")
		r.conserved()
	})
}

// After large replies fewer lines are under way: what they may bring is counted
// before they come.
func TestLargeRepliesLowerConcurrency(t *testing.T) {
	bubble(t, func(t *testing.T) {
		big := []byte(`"` + strings.Repeat("x", 100<<10) + `"`)
		r := newRig(t, 200, 200, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			return batch.Reply{Status: 200, Body: big}, memory.Wait(ctx, time.Second)
		})
		r.opts.CheckpointBytes = 400 << 10
		f := memory.NewFaults()
		f.Before("Objects.Put", 0, func(ctx context.Context, _ memory.Point) error { return memory.Wait(ctx, 100*time.Millisecond) })
		done := r.begin(f, life)
		r.pass(250 * time.Millisecond) // never at the instant at which replies come
		for range 20 {
			r.pass(500 * time.Millisecond)
			if now, _ := r.model.InFlight(); now > 9 && len(r.model.Calls()) > 32 {
				t.Errorf("%d lines of 100 KiB under way in a window of 800 KiB", now)
			}
		}
		expect(t, <-done, true, "done")
		for _, c := range r.part(0).Chunks {
			if c.Bytes > 901<<10 {
				t.Errorf("a chunk of %d KiB: the first replies, which nobody had counted, were all taken in", c.Bytes>>10)
			}
		}
		r.conserved()
	})
}

func TestCheckpointByAge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 8, 8, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			return after(time.Duration(1+c.Line*10)*time.Second)(ctx, c)
		})
		done := r.begin(nil, life)
		r.pass(15 * time.Second)
		if n := r.part(0).Processed; n != 0 {
			t.Errorf("%d lines committed 14 s after the first result", n)
		}
		r.pass(2 * time.Second)
		if n := r.part(0).Processed; n != 2 {
			t.Errorf("%d lines committed 16 s after the first result, want 2", n)
		}
		<-done
		r.conserved()
	})
}

func TestCheckpointByLines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 500, 500, after(time.Second))
		r.run(nil, life)
		p := r.part(0)
		if len(p.Chunks) != 5 {
			t.Errorf("%d chunks for 500 lines, want 5", len(p.Chunks))
		}
		for _, c := range p.Chunks {
			if c.N < 100 && c != p.Chunks[4] || c.N > 132 {
				t.Errorf("chunk of %d lines", c.N)
			}
		}
	})
}

// The object first, then the pointer; under a key with the claim's token.
func TestChunkBeforePointer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 10, 10, nil)
		f := memory.NewFaults()
		f.Before("Claims.Checkpoint", 1, func(context.Context, memory.Point) error {
			want := fmt.Sprintf("%s/parts/%s/0/%s-0.jsonl", tenant, batchID, r.part(0).Owner)
			if keys := r.m.Objects.Keys(results); len(keys) != 1 || keys[0] != want {
				t.Errorf("objects at the checkpoint: %v, want %s", keys, want)
			}
			return nil
		})
		r.run(f, life)
		if f.Count("Claims.Checkpoint") != 1 {
			t.Error("no checkpoint")
		}
		r.conserved()
	})
}

// recorder notes every checkpoint and every chunk that a run tries to write.
type recorder struct {
	mu     sync.Mutex
	steps  []batch.Checkpoint
	puts   map[string][]byte
	differ []string // keys put again with other bytes
}

func (r *rig) recorder() *recorder {
	rec := &recorder{puts: map[string][]byte{}}
	r.ports = func(p *batch.RunnerPorts) {
		p.Claims, p.Objects = recordedClaims{p.Claims, rec}, recordedObjects{p.Objects, rec}
	}
	return rec
}

type recordedClaims struct {
	batch.Claims
	rec *recorder
}

func (c recordedClaims) Checkpoint(ctx context.Context, cl batch.Claim, k batch.Checkpoint, until, now time.Time) error {
	c.rec.mu.Lock()
	c.rec.steps = append(c.rec.steps, batch.Checkpoint{From: k.From, To: k.To, Done: k.Done.Clone(), Chunk: k.Chunk})
	c.rec.mu.Unlock()
	return c.Claims.Checkpoint(ctx, cl, k, until, now)
}

type recordedObjects struct {
	batch.Objects
	rec *recorder
}

func (o recordedObjects) Put(ctx context.Context, ob batch.Object, data []byte) (batch.Object, error) {
	o.rec.mu.Lock()
	if old, ok := o.rec.puts[ob.Key]; ok && !bytes.Equal(old, data) {
		o.rec.differ = append(o.rec.differ, ob.Key)
	}
	o.rec.puts[ob.Key] = bytes.Clone(data)
	o.rec.mu.Unlock()
	return o.Objects.Put(ctx, ob, data)
}

// A checkpoint of unknown fate is repeated with the identical chunk, although
// more results have come meanwhile; whether it had landed or not, its records
// count once.
func TestUnknownFateRepeatsIdenticalCheckpoint(t *testing.T) {
	for name, landed := range map[string]bool{"had landed": true, "had not": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, 500, 500, after(time.Second))
				rec := r.recorder()
				f := memory.NewFaults()
				for n := 1; n <= 3; n++ {
					if landed {
						f.After("Claims.Checkpoint", n, memory.Fail(nil))
						f.After("Objects.Put", n, memory.Fail(nil))
					} else {
						f.Before("Claims.Checkpoint", n, memory.Fail(nil))
						f.Before("Objects.Put", n, memory.Fail(nil))
					}
				}
				expect(t, r.run(f, life), true, "done")
				for n := 1; n <= 3; n++ {
					if !reflect.DeepEqual(rec.steps[0], rec.steps[n]) {
						t.Errorf("try %d of the first checkpoint differs: %+v, first %+v", n+1, rec.steps[n].Chunk, rec.steps[0].Chunk)
					}
				}
				if len(rec.differ) != 0 {
					t.Errorf("keys written with different bytes: %v", rec.differ)
				}
				if n := r.repeats(); n != 0 {
					t.Errorf("%d lines repeated", n)
				}
				r.conserved()
			})
		})
	}
}

// One write to the part at a time: a heartbeat never overtakes a checkpoint.
func TestOneWriteAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 3000, 3000, after(time.Second))
		f := memory.NewFaults()
		var mu sync.Mutex
		writing := 0
		for _, op := range []string{"Claims.Heartbeat", "Claims.Checkpoint", "Claims.Finish"} {
			f.Before(op, 0, func(ctx context.Context, p memory.Point) error {
				mu.Lock()
				if writing++; writing > 1 {
					t.Errorf("%v beside another write", p)
				}
				mu.Unlock()
				err := memory.Wait(ctx, 700*time.Millisecond)
				mu.Lock()
				writing--
				mu.Unlock()
				return err
			})
		}
		expect(t, r.run(f, life), true, "done")
		if f.Count("Claims.Heartbeat") < 2 {
			t.Error("no heartbeats")
		}
	})
}
