package storetest

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// T is what a case needs of a *testing.T. Fatalf ends the calling goroutine.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
}

var _ T = (*testing.T)(nil)

// Case is one case of a suite over the ports P.
type Case[P any] struct {
	Name string
	Run  func(t T, p P)
}

// run runs a suite as parallel subtests, each with ports from open.
func run[P any](t *testing.T, cases []Case[P], open func(T) P) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, open(t))
		})
	}
}

// Fails runs one case apart from any test and reports whether it failed, by
// whatever means (a panic in the case's own goroutine too), and what it said.
func Fails[P any](ctx context.Context, c Case[P], open func(T) P) (failed bool, said string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &recorder{ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.cleanUp()
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		c.Run(r, open(r))
	}()
	<-done
	return r.Failed(), r.said()
}

// recorder is a T that only takes note.
type recorder struct {
	ctx context.Context

	mu       sync.Mutex
	failed   bool
	lines    []string
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

func (r *recorder) cleanUp() {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}
