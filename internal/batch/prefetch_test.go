package batch_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// opens is a store that notes what is opened and whether it is closed.
type opens struct {
	batch.Objects
	mu     sync.Mutex
	ranges [][2]int64 // in the order of their opening
	open   int
	pins   map[string]bool // ETags asked for
}

func (o *opens) Open(ctx context.Context, object batch.Object, from, to int64) (io.ReadCloser, error) {
	o.mu.Lock()
	o.ranges = append(o.ranges, [2]int64{from, to})
	if o.pins == nil {
		o.pins = map[string]bool{}
	}
	o.pins[object.ETag] = true
	o.mu.Unlock()
	body, err := o.Objects.Open(ctx, object, from, to)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open++
	return &counted{body, o}, nil
}

type counted struct {
	io.ReadCloser
	o *opens
}

func (c *counted) Close() error {
	c.o.mu.Lock()
	defer c.o.mu.Unlock()
	c.o.open--
	return c.ReadCloser.Close()
}

func (o *opens) seen() [][2]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.ranges)
}

func (o *opens) left(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open != 0 {
		t.Errorf("%d streams are open after the end", o.open)
	}
}

// stored is an object of n random bytes, behind faults that the test arms.
func stored(t *testing.T, seed uint64, n int) (*opens, *memory.Faults, batch.Object, []byte) {
	t.Helper()
	content := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = rng.Read(content)
	f := memory.NewFaults()
	m := memory.NewObjects(f)
	o, err := m.With(nil).Put(t.Context(), batch.Object{Bucket: "in", Key: "big"}, content)
	must(t, err)
	return &opens{Objects: m}, f, o, content
}

// weather is a store of late answers and torn streams, at most four tears of one
// range in a row.
type weather struct {
	batch.Objects
	mu   sync.Mutex
	rng  *rand.Rand
	torn map[int64]int // by the end of its range, since its last byte
}

// blow waits a while and perhaps tears the range that ends at to.
func (w *weather) blow(ctx context.Context, to int64) error {
	w.mu.Lock()
	late, tear := time.Duration(w.rng.IntN(50))*time.Millisecond, w.rng.IntN(4) == 0 && w.torn[to] < 4
	if tear {
		w.torn[to]++
	}
	w.mu.Unlock()
	select {
	case <-time.After(late):
	case <-ctx.Done():
	}
	if tear {
		return io.ErrUnexpectedEOF
	}
	return ctx.Err()
}

func (w *weather) Open(ctx context.Context, o batch.Object, from, to int64) (io.ReadCloser, error) {
	if err := w.blow(ctx, to); err != nil {
		return nil, err
	}
	body, err := w.Objects.Open(ctx, o, from, to)
	return &gusty{body, w, ctx, to}, err
}

type gusty struct {
	io.ReadCloser
	w   *weather
	ctx context.Context
	to  int64
}

func (g *gusty) Read(p []byte) (int, error) {
	if err := g.w.blow(g.ctx, g.to); err != nil {
		return 0, err
	}
	g.w.mu.Lock()
	p = p[:1+g.w.rng.IntN(len(p))]
	g.w.torn[g.to] = 0
	g.w.mu.Unlock()
	return g.ReadCloser.Read(p)
}

// Order and content survive whatever arrives when, and whatever tears: each seed
// is another object, reach, weather and way of reading.
func TestPrefetchProperty(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			store, _, o, want := stored(t, seed, rng.IntN(5000))
			size, ranges := int64(1+rng.IntN(700)), 1+rng.IntN(6)
			w := &weather{Objects: store, rng: rand.New(rand.NewPCG(seed, 6)), torn: map[int64]int{}}
			p := batch.NewPrefetch(t.Context(), w, o, size, 1+rng.Int64N(size), ranges)
			var got []byte
			for buf := make([]byte, 1+rng.IntN(900)); ; {
				n, err := p.Read(buf[:1+rng.IntN(len(buf))])
				got = append(got, buf[:n]...)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatalf("seed %d: after %d bytes: %v", seed, len(got), err)
				}
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("seed %d: %d bytes of %d, or others", seed, len(got), len(want))
			}
			p.Close()
			store.left(t)
			if n, err := p.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("seed %d: a closed one reads %d, %v", seed, n, err)
			}
		})
	}
}

// As many requests as there are ranges, no byte twice, every one pinned: one for
// a file that fits a range, none for an empty one.
func TestPrefetchOpensEachRangeOnce(t *testing.T) {
	const size = 64
	for bytes, want := range map[int]int{0: 0, 1: 1, size - 1: 1, size: 1, size + 1: 2, 4*size - 1: 4, 10 * size: 10} {
		store, _, o, _ := stored(t, 1, bytes)
		p := batch.NewPrefetch(t.Context(), store, o, size, 10, 4)
		n, err := io.Copy(io.Discard, p)
		p.Close()
		got := store.seen()
		if n != int64(bytes) || err != nil || len(got) != want {
			t.Errorf("%d bytes: read %d, %v, in %d requests, want %d", bytes, n, err, len(got), want)
		}
		slices.SortFunc(got, func(a, b [2]int64) int { return int(a[0] - b[0]) })
		for at, r := range got {
			if r != [2]int64{int64(at * size), int64(min((at+1)*size, bytes))} {
				t.Errorf("%d bytes: ranges %v", bytes, got)
			}
		}
		if want > 0 && (len(store.pins) != 1 || !store.pins[o.ETag]) {
			t.Errorf("pinned by %v, want %s", store.pins, o.ETag)
		}
		store.left(t)
	}
}

// However slow its reader, nothing is asked for beyond the reach; a range is
// asked for once all of the first one has been read, and not a byte earlier.
func TestPrefetchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, ranges = 100, 4
		store, _, o, _ := stored(t, 2, 20*size)
		p := batch.NewPrefetch(t.Context(), store, o, size, 30, ranges)
		defer p.Close()
		for read := range int64(20 * size) {
			synctest.Wait()
			// The byte before `read` was the last of its range only when the next is asked for.
			first := max(read-1, 0) / size
			if got, want := int64(len(store.seen())), min(first+ranges, 20); got != want {
				t.Fatalf("after %d bytes %d ranges were asked for, want %d", read, got, want)
			}
			if _, err := io.ReadFull(p, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// One fault anywhere is healed; one that stays is told where it is met, after
// every byte before it, and ends everything else.
func TestPrefetchFaultAtEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, block = 50, 20
		clean, f, o, want := stored(t, 3, 7*size+13)
		p := batch.NewPrefetch(t.Context(), clean, o, size, block, 3)
		_, err := io.Copy(io.Discard, p)
		must(t, err)
		p.Close()
		opened, read := f.Count("Objects.Open"), f.Count("Objects.Read")
		if opened != 8 || read < 20 {
			t.Fatalf("%d opens, %d reads", opened, read)
		}
		for op, calls := range map[string]int{"Objects.Open": opened, "Objects.Read": read} {
			for n := 1; n <= calls; n++ {
				for when, arm := range map[string]func(*memory.Faults, memory.Hook){
					"before": func(f *memory.Faults, h memory.Hook) { f.Before(op, n, h) },
					"after":  func(f *memory.Faults, h memory.Hook) { f.After(op, n, h) },
				} {
					store, f, o, _ := stored(t, 3, len(want))
					arm(f, memory.Fail(errors.New("reset")))
					p := batch.NewPrefetch(t.Context(), store, o, size, block, 3)
					got, err := io.ReadAll(p)
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("%s %s#%d: %d bytes, %v", when, op, n, len(got), err)
					}
					p.Close()
					if when == "before" { // an opening whose answer was lost can't be closed
						store.left(t)
					}
				}
			}
		}
	})
}

// stuck is a store in which one range can't be opened, for good, and those after
// it don't answer.
type stuck struct {
	batch.Objects
	from    int64
	err     error
	tries   int // by one range's goroutine
	waiting atomic.Int64
}

func (s *stuck) Open(ctx context.Context, o batch.Object, from, to int64) (io.ReadCloser, error) {
	switch {
	case from == s.from:
		s.tries++
		return nil, s.err
	case from > s.from:
		s.waiting.Add(1)
		defer s.waiting.Add(-1)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Objects.Open(ctx, o, from, to)
}

func TestPrefetchErrorsComeInOrder(t *testing.T) {
	const size = 50
	for _, c := range []struct {
		err   error
		tries int
	}{{batch.ErrChanged, 1}, {batch.ErrNotFound, 1}, {io.ErrUnexpectedEOF, 6}, {io.EOF, 6}} {
		synctest.Test(t, func(t *testing.T) {
			store, _, o, want := stored(t, 4, 20*size)
			bad := &stuck{Objects: store, from: 2 * size, err: c.err}
			p := batch.NewPrefetch(t.Context(), bad, o, size, 20, 4)
			got := make([]byte, 2*size)
			_, err := io.ReadFull(p, got)
			if err != nil || !bytes.Equal(got, want[:len(got)]) {
				t.Errorf("%v: what came before is lost: %v", c.err, err)
			}
			for range 2 { // it stays
				if n, err := p.Read(got); n != 0 || !errors.Is(err, c.err) || err == io.EOF {
					t.Errorf("%v: %d bytes, %v", c.err, n, err)
				}
			}
			synctest.Wait() // nobody has closed it, and yet nothing goes on
			if n := bad.waiting.Load(); n != 0 || bad.tries != c.tries {
				t.Errorf("%v: %d ranges are still under way; the bad one was asked for %d times, want %d", c.err, n, bad.tries, c.tries)
			}
			p.Close()
			store.left(t)
		})
	}
}

// What a range gave before it tore for good is not lost, though it is no whole
// block.
func TestPrefetchGivesWhatCameBeforeATear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, f, o, want := stored(t, 5, 90)
		f.Before("Objects.Open", 0, func(_ context.Context, p memory.Point) error {
			if p.N > 1 {
				return io.ErrUnexpectedEOF
			}
			return nil
		})
		p := batch.NewPrefetch(t.Context(), endsEarly{store}, o, 100, 100, 2)
		defer p.Close()
		got, err := io.ReadAll(p)
		if !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.Equal(got, want[:45]) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	})
}

var errStop = errors.New("told to stop")

// Whoever ends it, by ctx or by Close, and wherever its fetches are: nothing is
// left behind, which the bubble checks for goroutines.
func TestPrefetchEnds(t *testing.T) {
	for _, op := range []string{"Objects.Open", "Objects.Read"} {
		for _, how := range []string{"ctx", "close"} {
			t.Run(op+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					store, f, o, _ := stored(t, 6, 1000)
					gate := memory.NewGate() // never opened
					f.Before(op, 0, gate.Wait)
					p := batch.NewPrefetch(ctx, store, o, 100, 50, 4)
					synctest.Wait()
					if n := len(store.seen()); n != 4 {
						t.Fatalf("%d ranges under way", n)
					}
					if how == "ctx" {
						read := make(chan error)
						go func() {
							_, err := p.Read(make([]byte, 10))
							read <- err
						}()
						synctest.Wait()
						cancel(errStop)
						if err := <-read; !errors.Is(err, errStop) {
							t.Errorf("read: %v", err)
						}
					}
					p.Close()
					store.left(t)
					if n := len(store.seen()); n != 4 {
						t.Errorf("%d ranges asked for after the end", n)
					}
				})
			})
		}
	}
}
