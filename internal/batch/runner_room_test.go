package batch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// scale weighs what is uncommitted: lines sent, bytes that a model was given room
// for, records that are not in a checkpoint yet.
type scale struct {
	mu         sync.Mutex
	held, peak int64
	byLine     map[int64]int64
}

// put says how much a line holds from now on.
func (s *scale) put(line, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held += n - s.byLine[line]
	s.byLine[line] = n
	s.peak = max(s.peak, s.held)
}

// weigh makes the rig's ports use the scale.
func (r *rig) weigh() *scale {
	s := &scale{byLine: map[int64]int64{}}
	r.ports = func(p *batch.RunnerPorts) { p.Claims = weighedClaims{p.Claims, r, s} }
	return s
}

type weighedClaims struct {
	batch.Claims
	r *rig
	s *scale
}

func (c weighedClaims) Checkpoint(ctx context.Context, cl batch.Claim, k batch.Checkpoint, until, now time.Time) error {
	for raw := range bytes.Lines(c.r.m.Objects.Bytes(results, k.Chunk.Key)) {
		if rec, err := batch.ParseRecord(raw); err == nil {
			c.s.put(rec.Line, 0)
		}
	}
	return c.Claims.Checkpoint(ctx, cl, k, until, now)
}

// reading answers as a model does over a wire: it asks for room, first for half of
// the body, and holds what it was given.
func (s *scale) reading(latency func(batch.Call) time.Duration, body func(batch.Call) []byte) answerer {
	return func(ctx context.Context, c batch.Call) (batch.Reply, error) {
		line := int64(len(c.Body))
		s.put(c.Line, line)
		if err := memory.Wait(ctx, latency(c)); err != nil {
			return batch.Reply{}, err
		}
		b := body(c)
		for _, n := range []int64{int64(len(b) / 2), int64(len(b))} {
			if err := c.Room(ctx, n); err != nil {
				s.put(c.Line, line)
				return batch.Reply{}, err
			}
			s.put(c.Line, line+n)
			if err := memory.Wait(ctx, 10*time.Millisecond); err != nil {
				return batch.Reply{}, err
			}
		}
		return batch.Reply{Status: 200, Body: b}, nil
	}
}

// Promise 8, against a model that answers everything with the largest reply, from
// the first K on: nothing uncommitted exceeds the window, but for one line with
// its reply.
func TestWindowHoldsLargestReplies(t *testing.T) {
	const checkpoint, size = 512 << 10, 1 << 20
	for name, latency := range map[string]func(batch.Call) time.Duration{
		"all at once": func(batch.Call) time.Duration { return time.Second },
		"spread":      func(c batch.Call) time.Duration { return time.Duration(500+c.Line*37%1000) * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var s *scale
				r := newRig(t, 100, 50, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
					return s.reading(latency, func(batch.Call) []byte { return text(size) })(ctx, c)
				})
				s = r.weigh()
				r.opts.CheckpointBytes, r.opts.ReplyBytes = checkpoint, size
				expect(t, r.run(nil, life), true, "done")
				if bound := int64(2*checkpoint + size + 1000); s.peak > bound {
					t.Errorf("%d bytes held at once, want %d at most", s.peak, bound)
				}
				r.conserved()
				if n := r.repeats(); n != 0 {
					t.Errorf("%d lines repeated: waiting for room cost them their time", n)
				}
			})
		})
	}
}

// The same for any mix of sizes, of replies that fail, and of two hands.
func TestWindowHoldsAnyReplies(t *testing.T) {
	const checkpoint, size = 64 << 10, 300 << 10
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d := &dice{rng: rand.New(rand.NewPCG(seed, 7))}
				var s *scale
				r := newRig(t, 300, 60, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
					if d.in(10) == 0 && c.Try < 3 {
						s.put(c.Line, 0)
						return batch.Reply{Status: 503}, nil
					}
					return s.reading(
						func(batch.Call) time.Duration { return time.Duration(d.in(2000)) * time.Millisecond },
						func(batch.Call) []byte { return text(min(10<<d.in(16), size)) },
					)(ctx, c)
				})
				s = r.weigh()
				r.opts.CheckpointBytes, r.opts.ReplyBytes = checkpoint, size
				r.opts.Concurrency = 1 + d.in(32)
				f := memory.NewFaults()
				f.Before("", 0, func(ctx context.Context, p memory.Point) error {
					if p.Op != "Model.Call" && d.in(50) == 0 {
						return memory.ErrInjected
					}
					return memory.Wait(ctx, time.Duration(d.in(50))*time.Millisecond)
				})
				r.run(f, life)
				// A record is a little more than its reply, which is what was weighed.
				if bound := int64(2*checkpoint + size + 1000); s.peak > bound {
					t.Errorf("%d bytes held at once, want %d at most", s.peak, bound)
				}
				r.settle()
				r.conserved()
			})
		})
	}
}

// text is a JSON string of n bytes.
func text(n int) []byte { return []byte(`"` + strings.Repeat("x", max(n-2, 0)) + `"`) }

// A line of more than the window goes alone; it isn't left behind.
func TestLineLargerThanTheWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 20, 10, after(time.Second))
		r.opts.CheckpointBytes = 20 // a line has about 100 bytes
		r.opts.CheckpointEvery = time.Hour
		expect(t, r.run(nil, life), true, "done")
		if _, most := r.model.InFlight(); most != 1 {
			t.Errorf("%d lines under way at once", most)
		}
		r.conserved()
	})
}

// Nothing is large enough for a checkpoint, but nothing more fits: it is made at
// once, not when it is old enough.
func TestFullWindowIsCommittedAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		pad, checkpoint int
		answer          answerer
	}{
		"no line fits": {3000, 2000, after(time.Second)},
		"halves of replies": {0, 64 << 10, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			for _, n := range []int64{21 << 10, 30 << 10} {
				if err := errors.Join(c.Room(ctx, n), memory.Wait(ctx, 500*time.Millisecond)); err != nil {
					return batch.Reply{}, err
				}
			}
			return batch.Reply{Status: 200, Body: text(30 << 10)}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newPaddedRig(t, 6, 6, c.pad, c.answer)
				r.opts.CheckpointBytes, r.opts.CheckpointEvery, r.opts.Concurrency = int64(c.checkpoint), time.Hour, 6
				start := time.Now()
				expect(t, r.run(nil, life), true, "done")
				if took := time.Since(start); took > 10*time.Second || r.repeats() > 0 {
					t.Errorf("took %s, %d lines repeated", took, r.repeats())
				}
				r.conserved()
			})
		})
	}
}

// Who waits for room ends with his claim, and the room he had serves the others.
func TestLostClaimLeavesTheRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 40, 20, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			latency := 2 * time.Second
			if c.Line < 3 {
				latency = time.Second
			}
			if err := memory.Wait(ctx, latency); err != nil {
				return batch.Reply{}, err
			}
			switch {
			case c.Line < 3:
				return batch.Reply{Status: 200, Body: text(60 << 10)}, nil // kept, but never committed
			case c.Line < 20:
				// Takes more than there is, and stands.
				if err := c.Room(ctx, 60<<10); err != nil {
					return batch.Reply{}, err
				}
				<-ctx.Done()
				return batch.Reply{}, ctx.Err()
			}
			return batch.Reply{Status: 200, Body: text(100 << 10)}, nil // fits only what was given back
		})
		r.opts.CheckpointBytes = 64 << 10
		f := memory.NewFaults()
		f.Before("Claims.Checkpoint", 0, func(context.Context, memory.Point) error {
			if r.part(0).State == batch.Leased && r.part(0).Owner != "thief" {
				return memory.ErrInjected
			}
			return nil
		})
		done := r.begin(f, life)
		r.pass(5 * time.Second)
		r.steal(0)
		out := <-done
		expect(t, out, false, "lost")
		if r.part(1).State != batch.Done {
			t.Errorf("the other part is %s: the lost one kept its room", r.part(1).State)
		}
	})
}

// What isn't JSON is kept as a string, and that counts.
func TestReplyThatGrowsTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		raw := bytes.Repeat([]byte{1}, 1000)
		r := newRig(t, 2, 2, func(_ context.Context, c batch.Call) (batch.Reply, error) {
			return batch.Reply{Status: 200, Body: raw[:800+c.Line]}, nil
		})
		r.opts.ReplyBytes = 6*800 + 2
		expect(t, r.run(nil, life), true, "done")
		all := r.conserved()
		if code := codeOf(all[0]); code != openai.CodeInvalidResponse {
			t.Errorf("at the bound: %q", code)
		}
		if code := codeOf(all[1]); code != openai.CodeResponseTooLarge {
			t.Errorf("beyond the bound: %q", code)
		}
	})
}

var errTorn = errors.New("torn")

// A part never has more chunks than lines: that, and the bound of a part's lines,
// is why its item always has room for them.
func TestChunksOfAPartAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 100, 100, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			return batch.Reply{Status: 200, Body: text(2000)}, memory.Wait(ctx, time.Duration(c.Line)*time.Second)
		})
		r.opts.CheckpointEvery, r.opts.CheckpointBytes = 1, 1
		f := memory.NewFaults()
		for n := 1; n < 100; n += 3 {
			f.After("Claims.Checkpoint", n, memory.Fail(errTorn))
		}
		r.run(f, 1000*time.Second)
		r.settle()
		r.conserved()
		if n := len(r.part(0).Chunks); n > 100 || n < 50 {
			t.Errorf("%d chunks for 100 lines, want the worst", n)
		}
	})
}
