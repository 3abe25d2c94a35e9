package batch_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// A torn stream is opened again where the next line begins: no line is lost, cut
// or sent twice.
func TestTornStream(t *testing.T) {
	for n := 1; n <= 12; n++ {
		bubble(t, func(t *testing.T) {
			r := newRig(t, 2000, 2000, nil)
			r.ports = func(p *batch.RunnerPorts) { p.Objects = drip{Objects: p.Objects, bytes: 1000 + 37*n} }
			f := memory.NewFaults()
			f.Before("Objects.Read", n, memory.Fail(nil))
			f.Before("Objects.Open", 2, memory.Fail(nil))
			f.After("Objects.Read", 3*n, memory.Fail(io.ErrUnexpectedEOF))
			expect(t, r.run(f, life), true, "done")
			r.conserved()
			if n := r.repeats(); n != 0 {
				t.Errorf("%d lines sent twice", n)
			}
			if opens := f.Count("Objects.Open"); opens != 4 {
				t.Errorf("opened %d times, want 4", opens)
			}
		})
	}
}

// A store that never gets further is given up, and what it has given is kept.
func TestTornStreamGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 10, 10, nil)
		f := memory.NewFaults()
		f.Before("Objects.Read", 0, memory.Fail(nil))
		start := time.Now()
		expect(t, r.run(f, life), false, "failed")
		if n := f.Count("Objects.Open"); n != 6 {
			t.Errorf("opened %d times, want 6", n)
		}
		if took := time.Since(start); took == 0 || took > 20*time.Second {
			t.Errorf("gave up after %s", took)
		}
	})
}

// A stream that hangs is given up like one that tears; one that waits for room,
// because the model is slow, is not.
func TestStalledStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 2000, 2000, after(40*time.Second))
		r.opts.Concurrency = 500
		r.ports = func(p *batch.RunnerPorts) { p.Objects = drip{Objects: p.Objects, bytes: 4000} }
		f := memory.NewFaults()
		gate := memory.NewGate() // never opened
		f.Before("Objects.Read", 3, gate.Wait)
		f.Before("Objects.Open", 2, gate.Wait)
		start := time.Now()
		expect(t, r.run(f, life), true, "done")
		if took := time.Since(start); took > 5*time.Minute {
			t.Errorf("took %s", took)
		}
		if n := f.Count("Objects.Open"); n != 3 {
			t.Errorf("opened %d times, want 3", n)
		}
		r.conserved()
	})
}

// drip gives a stream's bytes in small reads and counts them.
type drip struct {
	batch.Objects
	bytes int
	read  *atomic.Int64
}

func (d drip) Open(ctx context.Context, o batch.Object, from, to int64) (io.ReadCloser, error) {
	s, err := d.Objects.Open(ctx, o, from, to)
	if err != nil {
		return nil, err
	}
	return dripping{s, d}, nil
}

type dripping struct {
	io.ReadCloser
	d drip
}

func (s dripping) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p[:min(len(p), s.d.bytes)])
	if s.d.read != nil {
		s.d.read.Add(int64(n))
	}
	return n, err
}

// Promise 8: while nothing can be sent, the reader stays within its bounds, in
// lines and in bytes, whatever the part's size.
func TestReadAheadIsBounded(t *testing.T) {
	for _, c := range []struct {
		name  string
		k     int
		bytes int64 // of a checkpoint
		most  int64
	}{
		// Lines are some 130 bytes. K sent, K ahead, one in the reader's hand, and
		// its buffer.
		{"lines", 32, 8 << 20, 150*(32+32+1) + 64<<10},
		// Two windows sent, an eighth of one ahead, a line, and the buffer.
		{"bytes", 5000, 8 << 10, 16<<10 + 1<<10 + 150 + 64<<10},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var read atomic.Int64
				r := newRig(t, 20000, 20000, after(100*time.Second))
				r.opts.Concurrency = c.k
				r.opts.CheckpointBytes = c.bytes
				r.ports = func(p *batch.RunnerPorts) { p.Objects = drip{p.Objects, 1 << 20, &read} }
				ctx, cancel := context.WithCancel(t.Context())
				d, _ := r.receive()
				done := make(chan batch.Outcome)
				go func() { done <- r.runDelivery(ctx, nil, d, life) }()
				r.pass(50 * time.Second)
				if n := read.Load(); n > c.most || n == 0 {
					t.Errorf("%d bytes read while nothing is answered, want at most %d", n, c.most)
				}
				cancel()
				<-done
			})
		})
	}
}
