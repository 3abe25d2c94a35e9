package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Errors that hooks answer with. Neither is one of a port's own errors: to the
// code under test they are trouble of unknown fate.
var (
	// ErrInjected is what Fail answers when it is given nil.
	ErrInjected = errors.New("injected fault")
	// ErrCrashed is every answer to a process after Crash.
	ErrCrashed = errors.New("process crashed")
)

// Point is one call of a port.
type Point struct {
	Op   string // "Claims.Checkpoint", "Objects.Put", …: port and method
	N    int    // it is the N-th call of Op, from 1
	Step int    // and the Step-th call of any operation, from 1
}

// String is "Claims.Checkpoint#3".
func (p Point) String() string { return fmt.Sprintf("%s#%d", p.Op, p.N) }

// Hook runs at a Point, in the caller's goroutine, with nothing locked. An
// error from it is the call's answer. ctx is the call's.
type Hook func(ctx context.Context, p Point) error

// Faults decides which calls of a store go wrong, and counts them. One value is
// one process: it may serve any number of stores. The nil pointer injects
// nothing. Safe for concurrent use.
//
// A crash table runs its scenario once with empty Faults, takes Calls, and then
// runs it again for each of them, with Before and with After:
//
//	for _, p := range clean.Calls() {
//		f := memory.NewFaults()
//		f.After(p.Op, p.N, f.Crash) // it took effect; nobody heard of it
//		…
//	}
//
// "Objects.Read" is an operation too, one call per Read of an opened stream; it
// has hooks (a torn stream), but is no step and not among Calls.
type Faults struct {
	mu      sync.Mutex
	counts  map[string]int
	calls   []Point
	before  []placed
	after   []placed
	crashed bool
}

type placed struct {
	op string
	n  int
	do Hook
}

// NewFaults returns Faults that inject nothing yet.
func NewFaults() *Faults { return &Faults{} }

// Before runs do before the n-th call of op (from 1) takes effect: an error
// from it means that nothing happened. n = 0 is every call; op "" is any
// operation, and n then counts steps.
func (f *Faults) Before(op string, n int, do Hook) { f.place(&f.before, placed{op, n, do}) }

// After runs do after the n-th call of op was decided and took effect: an error
// from it replaces the answer, which is thereby lost.
func (f *Faults) After(op string, n int, do Hook) { f.place(&f.after, placed{op, n, do}) }

func (f *Faults) place(where *[]placed, p placed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*where = append(*where, p)
}

// Crash is a Hook that ends the process: this call and every later one is
// answered with ErrCrashed, and the later ones have no effect.
func (f *Faults) Crash(context.Context, Point) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashed = true
	return ErrCrashed
}

// Calls are the calls made so far, in the order of their arrival.
func (f *Faults) Calls() []Point {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Point(nil), f.calls...)
}

// Count is how many calls of op arrived so far.
func (f *Faults) Count(op string) int {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[op]
}

// Fail is a Hook that answers err, or ErrInjected for nil.
func Fail(err error) Hook {
	if err == nil {
		err = ErrInjected
	}
	return func(context.Context, Point) error { return err }
}

// Gate holds calls up. A test waits for Reached, does something else, and
// calls Open.
type Gate struct {
	reached chan struct{}
	open    chan struct{}
	arrive  sync.Once
	release sync.Once
}

// NewGate returns a closed gate.
func NewGate() *Gate { return &Gate{reached: make(chan struct{}), open: make(chan struct{})} }

// Wait is a Hook that stands until Open, or until the call's ctx ends.
func (g *Gate) Wait(ctx context.Context, p Point) error {
	g.arrive.Do(func() { close(g.reached) })
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", p, ctx.Err())
	}
}

// Reached is closed once a call stands at the gate.
func (g *Gate) Reached() <-chan struct{} { return g.reached }

// Open lets pass who waits and who comes.
func (g *Gate) Open() { g.release.Do(func() { close(g.open) }) }

// arrive numbers a call and gives the hooks that concern it.
func (f *Faults) arrive(op string, step bool) (p Point, before, after []Hook) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[string]int{}
	}
	f.counts[op]++
	p = Point{Op: op, N: f.counts[op]}
	if step {
		p.Step = len(f.calls) + 1
		f.calls = append(f.calls, p)
	}
	return p, match(f.before, p), match(f.after, p)
}

func match(hooks []placed, p Point) (found []Hook) {
	for _, h := range hooks {
		if h.op == p.Op && (h.n == 0 || h.n == p.N) || h.op == "" && p.Step > 0 && (h.n == 0 || h.n == p.Step) {
			found = append(found, h.do)
		}
	}
	return found
}

func (f *Faults) run(ctx context.Context, p Point, hooks []Hook) error {
	for _, do := range hooks {
		if err := do(ctx, p); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return fmt.Errorf("%s: %w", p, ErrCrashed)
	}
	return nil
}

// call runs one operation of a port between its hooks.
func call[V any](ctx context.Context, f *Faults, op string, do func() (V, error)) (V, error) {
	return point(ctx, f, op, true, do)
}

// Around runs do as a call of op, between its hooks: for a port that wraps one of
// this package and is to go wrong as a whole. What do calls should have no faults
// of its own. A nil f runs do and nothing else.
func (f *Faults) Around(ctx context.Context, op string, do func() error) error {
	return effect(ctx, f, op, do)
}

// effect is call for operations that answer nothing but an error.
func effect(ctx context.Context, f *Faults, op string, do func() error) error {
	_, err := call(ctx, f, op, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func point[V any](ctx context.Context, f *Faults, op string, step bool, do func() (V, error)) (V, error) {
	var none V
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("%s: %w", op, err)
	}
	if f == nil {
		return do()
	}
	p, before, after := f.arrive(op, step)
	if err := f.run(ctx, p, before); err != nil {
		return none, err
	}
	v, err := do()
	if lost := f.run(ctx, p, after); lost != nil {
		return none, lost
	}
	return v, err
}
