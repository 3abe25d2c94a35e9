package batch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// Step 7: a line is sent only while its timeout and the margin fit; then the
// part is handed over under the same message, without burning an attempt.
func TestHandOverBeforeDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 2000, 2000, after(time.Second))
		out := r.run(nil, 200*time.Second) // 20 s to send in
		expect(t, out, true, "yielded")
		if n := len(r.model.Calls()); n != 20*32 {
			t.Errorf("%d lines sent in the 20 s there were, want 640", n)
		}
		p := r.part(0)
		if p.State != batch.Pending || p.Attempts != 0 || p.Processed != 640 {
			t.Errorf("handed over as %s, %d attempts, %d processed", p.State, p.Attempts, p.Processed)
		}
		if due := time.Until(p.Due); due != 2*time.Hour {
			t.Errorf("message overdue in %s, want 2h", due)
		}
		left := r.m.Queue.Messages()
		if len(left) != 1 || left[0].Message != message(0) || left[0].Receives != 0 || left[0].Visible.After(time.Now()) {
			t.Errorf("messages %+v, want the same anew", left)
		}
		r.settle()
		r.conserved()
		if n := r.repeats(); n != 0 {
			t.Errorf("%d lines repeated by a clean hand-over", n)
		}
	})
}

func TestHandOverWithoutProgressKeepsAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 5, 5, nil)
		p := r.part(0)
		p.Attempts = 2
		r.m.Table.SeedPart(p)
		expect(t, r.run(nil, 180*time.Second), true, "yielded")
		if got := r.part(0).Attempts; got != 2 {
			t.Errorf("%d attempts after a hand-over, want the 2 from before", got)
		}
	})
}

func TestHandOverWithProgressForgivesAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 2000, 2000, after(time.Second))
		p := r.part(0)
		p.Attempts = 2
		r.m.Table.SeedPart(p)
		expect(t, r.run(nil, 190*time.Second), true, "yielded")
		if got := r.part(0).Attempts; got != 0 {
			t.Errorf("%d attempts after a hand-over with progress, want 0", got)
		}
	})
}

func TestHandOverSendFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 5, 5, nil)
		f := memory.NewFaults()
		f.Before("Queue.Send", 0, memory.Fail(nil))
		expect(t, r.run(f, 180*time.Second), false, "yielded")
		r.settle()
		r.conserved()
	})
}

// An upstream that asks for more than LongWait gets it, and not from a function
// that is paid for waiting.
func TestLongRetryAfterHandsOver(t *testing.T) {
	for _, status := range []int{408, 409, 429, 500, 502, 503, 504} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var refusing atomic.Bool
				refusing.Store(true)
				r := newRig(t, 100, 100, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
					if c.Line == 40 && refusing.Load() {
						return batch.Reply{Status: status, RetryAfter: 90 * time.Second}, nil
					}
					return after(time.Second)(ctx, c)
				})
				start := time.Now()
				expect(t, r.run(nil, life), true, "yielded")
				if took := time.Since(start); took > 4*time.Second {
					t.Errorf("waited %s", took)
				}
				left := r.m.Queue.Messages()
				if len(left) != 1 || left[0].Visible.Sub(start) != 91*time.Second {
					t.Errorf("message %+v, want it 90 s after the refusal at 1 s", left)
				}
				if p := r.part(0); p.State != batch.Pending || p.Attempts != 0 || p.DoneLines.Has(40) {
					t.Errorf("part %+v", p)
				}
				if got, sent := len(r.records()), len(r.model.Calls()); got != sent-1 {
					t.Errorf("%d results of %d lines sent were kept", got, sent)
				}
				refusing.Store(false)
				r.settle()
				r.conserved()
			})
		})
	}
}

// C10f: attempts stay, the message comes back later each time.
func TestChangedInputFailsThePart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 10, 10, nil)
		_, err := r.m.Objects.Put(t.Context(), batch.Object{Bucket: "inputs", Key: "files/t1/file-1"}, []byte("other"))
		if err != nil {
			t.Fatal(err)
		}
		for n, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
			expect(t, r.run(nil, life), false, "failed")
			p := r.part(0)
			if p.State != batch.Pending || p.Attempts != n+1 || !strings.Contains(p.LastError, "changed") {
				t.Errorf("part %+v", p)
			}
			visible := r.m.Queue.Messages()[0].Visible
			if wait := time.Until(visible); wait != want {
				t.Errorf("receive %d: comes back after %s, want %s", n+1, wait, want)
			}
			r.pass(time.Until(visible))
		}
		expect(t, r.run(nil, life), true, "dead")
	})
}

// Lines already under way when the input turns out to be unreadable are kept.
func TestUnreadableInputKeepsResults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 2000, 2000, after(time.Second))
		f := memory.NewFaults()
		f.Before("Objects.Read", 2, memory.Fail(nil))
		f.Before("Objects.Open", 2, memory.Fail(batch.ErrNotFound))
		expect(t, r.run(f, life), false, "failed")
		if got := len(r.records()); got == 0 || got != len(r.model.Calls()) {
			t.Errorf("%d results of %d lines sent were kept", got, len(r.model.Calls()))
		}
		r.settle()
		r.conserved()
	})
}

func TestBrokenChunkStoreFailsThePart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 500, 500, after(time.Second))
		f := memory.NewFaults()
		f.Before("Objects.Put", 0, memory.Fail(nil))
		start := time.Now()
		expect(t, r.run(f, life), false, "failed")
		if took := time.Since(start); took < 60*time.Second || took > 80*time.Second {
			t.Errorf("gave up after %s, want about half a lease", took)
		}
		if p := r.part(0); p.State != batch.Pending || p.Processed != 0 || !strings.Contains(p.LastError, "write chunk") {
			t.Errorf("part %+v", p)
		}
		r.settle()
		r.conserved()
		if n := r.repeats(); n > 132 {
			t.Errorf("%d lines repeated, want C+K at most", n)
		}
	})
}

func TestInputThatIsNotWhatWasPlanned(t *testing.T) {
	for name, change := range map[string]func(*batch.Part){
		"fewer lines": func(p *batch.Part) { p.Lines = 11 },
		"half a line": func(p *batch.Part) { p.From += 10 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, 10, 10, nil)
				p := r.part(0)
				change(&p)
				r.m.Table.SeedPart(p)
				expect(t, r.run(nil, life), false, "failed")
				if p := r.part(0); p.State != batch.Pending || p.LastError == "" {
					t.Errorf("part %+v", p)
				}
			})
		})
	}
}

// A holder that was told `lost` while the part went back to pending (a hand-over
// whose answer was lost) leaves a message that goes on.
func TestLostAnswerOfHandOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 5, 5, nil)
		f := memory.NewFaults()
		f.After("Claims.HandOver", 1, memory.Fail(nil))
		expect(t, r.run(f, 180*time.Second), false, "lost")
		r.settle()
		r.conserved()
	})
}

// A checkpoint that the table refuses for good, whatever its reason, gives the
// part back: otherwise a claim that prolongs itself would try for ever, and no
// attempt would ever count.
func TestCheckpointRefusedForGoodFailsThePart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 500, 500, after(time.Second))
		f := memory.NewFaults()
		f.Before("Claims.Checkpoint", 0, memory.Fail(errors.New("item too large")))
		for n := 1; n <= 3; n++ {
			start := time.Now()
			expect(t, r.run(f, life), false, "failed")
			if took := time.Since(start); took < 60*time.Second || took > 80*time.Second {
				t.Errorf("gave up after %s, want about half a lease", took)
			}
			p := r.part(0)
			if p.State != batch.Pending || p.Attempts != n || !strings.Contains(p.LastError, "checkpoint: item too large") {
				t.Errorf("part %+v", p)
			}
			r.pass(time.Until(r.m.Queue.Messages()[0].Visible))
		}
		expect(t, r.run(f, life), true, "dead")
	})
}

// The last write waits for a heartbeat that is under way: one that came after it
// would be refused, or set back what it wrote.
func TestNoLastWriteBesideAHeartbeat(t *testing.T) {
	for last, beats := range map[string]int{"Claims.Checkpoint": 0, "Claims.HandOver": 1} {
		t.Run(last, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				// The only result comes just before a heartbeat is due, and its checkpoint
				// takes until after that.
				r := newRig(t, 1, 1, after(29500*time.Millisecond))
				until := life
				if last == "Claims.HandOver" {
					r = newRig(t, 2, 2, after(29500*time.Millisecond))
					r.opts.Concurrency = 1
					until = 181 * time.Second
				}
				f := memory.NewFaults()
				slow := func(ctx context.Context, _ memory.Point) error { return memory.Wait(ctx, time.Second) }
				f.Before("Claims.Checkpoint", 1, slow)
				var beating atomic.Bool
				f.Before("Claims.Heartbeat", 1, func(ctx context.Context, p memory.Point) error {
					beating.Store(true)
					defer beating.Store(false)
					return slow(ctx, p)
				})
				f.After(last, 1, func(context.Context, memory.Point) error {
					if beating.Load() {
						t.Error("written while a heartbeat is under way")
					}
					return nil
				})
				r.run(f, until)
				if f.Count(last) != 1 || f.Count("Claims.Heartbeat") != beats {
					t.Errorf("%d last writes, %d heartbeats, want %d", f.Count(last), f.Count("Claims.Heartbeat"), beats)
				}
			})
		})
	}
}

// A part is done with its last checkpoint, in one write; one that is found with
// nothing left to do, as a worker of another release may leave it, needs its own.
func TestDoneWithTheLastCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 250, 250, after(time.Second))
		f := memory.NewFaults()
		expect(t, r.run(f, life), true, "done")
		p := r.part(0)
		if p.State != batch.Done || f.Count("Claims.Finish") != 0 || int64(f.Count("Claims.Checkpoint")+1) != p.Ver {
			t.Errorf("%d finishes, %d checkpoints; part %+v", f.Count("Claims.Finish"), f.Count("Claims.Checkpoint"), p)
		}
		r.conserved()

		p.State, p.Owner, p.Due = batch.Pending, "", time.Now()
		r.m.Table.SeedPart(p)
		r.sendMessage(0)
		f = memory.NewFaults()
		expect(t, r.run(f, life), true, "done")
		if p := r.part(0); p.State != batch.Done || f.Count("Claims.Finish") != 1 || f.Count("Model.Call") != 0 {
			t.Errorf("%d finishes, %d requests; part %+v", f.Count("Claims.Finish"), f.Count("Model.Call"), p)
		}
		r.conserved()
	})
}

// A secret that can't be read is the worker's trouble: no line gets an error for
// it, what came before is kept, and the part comes back.
func TestUnreadableSecretFailsThePart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var denied atomic.Bool
		r := newRig(t, 200, 200, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			if denied.Load() {
				// The secret store, and not the model, took longer than the line has.
				<-ctx.Done()
				return batch.Reply{}, fmt.Errorf("%w: denied", batch.ErrNoCredential)
			}
			denied.Store(c.Line == 31)
			return after(time.Second)(ctx, c)
		})
		expect(t, r.run(nil, life), false, "failed")
		p := r.part(0)
		if p.State != batch.Pending || p.Processed == 0 || p.Err() != 0 || !strings.Contains(p.LastError, "secret can't be read: denied") {
			t.Errorf("part %+v", p)
		}
		if wait := time.Until(r.m.Queue.Messages()[0].Visible); wait != 5*time.Second {
			t.Errorf("comes back after %s, want 5s", wait)
		}
		denied.Store(false)
		r.model.Calls()
		r.ports = func(p *batch.RunnerPorts) { p.Model = memory.NewModel(nil, nil) }
		r.settle()
		r.conserved()
	})
}
