// Package frozen gives tests the time as a function reads it after Lambda had it frozen
// between two requests: the wall clock went on, and the monotonic one, which is
// suspended with the rest, did not. What outlives a request is to be aged by the first
// (time.Time.Round strips the second), or it is believed for as long again. For tests
// only.
package frozen

import (
	"testing"
	"time"
	"unsafe"
)

// Thawed is now, a reading of time.Now, as it reads d later, whole seconds, all of which
// the function was frozen. It fails t where a time.Time is no longer built as it takes
// it to be, and never gives a time that shows nothing.
func Thawed(t *testing.T, now time.Time, d time.Duration) time.Time {
	t.Helper()
	later := now
	*(*uint64)(unsafe.Pointer(&later)) += uint64(d/time.Second) << 30 // the seconds, where there are both readings
	if later.Sub(now) != 0 || later.Round(0).Sub(now.Round(0)) != d {
		t.Fatal("a time.Time is no longer built as internal/frozen takes it to be")
	}
	return later
}
