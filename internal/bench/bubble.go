package bench

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Bubble runs f in virtual time, in which an hour of waiting takes none, and ends
// the process: with 1 when f failed, else with 0. A program has no other way into
// a bubble than through a test, and the test runner has no other way out. After
// what f prints it says PASS, or FAIL and why, on stdout.
func Bubble(f func() error) {
	os.Args = os.Args[:1] // the runner reads its own flags from them
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "bubble",
		F: func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := f(); err != nil {
					t.Error(err)
				}
			})
		},
	}}, nil, nil)
}

// Bubbles runs f for 0 to n-1, each in a bubble of its own, as many at once as there
// are processors. last is run when all have ended, outside of them. Otherwise it is
// as Bubble: the process ends.
func Bubbles(n int, f func(i int), last func() error) {
	os.Args = os.Args[:1]
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "bubbles",
		F: func(t *testing.T) {
			var next atomic.Int64
			t.Run("all", func(t *testing.T) {
				for range runtime.GOMAXPROCS(0) {
					t.Run("some", func(t *testing.T) {
						t.Parallel()
						for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
							synctest.Test(t, func(*testing.T) { f(int(i)) })
						}
					})
				}
			})
			if err := last(); err != nil {
				t.Error(err)
			}
		},
	}}, nil, nil)
}
