package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/lease"
	"holdfast/internal/upload"
)

// racers is how many callers a race has.
const racers = 64

// race makes n calls at once, as far as the machine can, and gives their
// answers.
func race[V any](n int, do func(i int) V) []V {
	answers := make([]V, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			answers[i] = do(i)
		})
	}
	close(start)
	wg.Wait()
	return answers
}

// value takes a call's two answers; the function it gives demands success.
func value[V any](v V, err error) func(t T, what string) V {
	return func(t T, what string) V {
		t.Helper()
		succeeds(t, what, err)
		return v
	}
}

// fault is the error of a call whose value doesn't matter.
func fault[V any](_ V, err error) error { return err }

// succeeds demands that a call did.
func succeeds(t T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// refuses demands that a call was answered with want.
func refuses(t T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error is %v, want %v", what, err, want)
	}
}

// decisions are the errors that tell a caller something about the store.
var decisions = []error{
	batch.ErrNotFound, batch.ErrExists, batch.ErrChanged, batch.ErrStatus, batch.ErrOver, batch.ErrDead, batch.ErrExhausted, batch.ErrAlive, batch.ErrEmpty, batch.ErrStale,
	lease.ErrHeld, lease.ErrLost, access.ErrNotFound, access.ErrExists, access.ErrDisabled, access.ErrReplaced, access.ErrNoTenant, access.ErrChanged, access.ErrReceipt, upload.ErrClosed, upload.ErrFull,
	bridge.ErrTaken, bridge.ErrNotFound, bridge.ErrChanged,
}

// interrupts demands that each call, made with a ctx that is over, is answered
// with an error that decides nothing.
func interrupts(t T, calls map[string]func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, do := range calls {
		err := do(ctx)
		if err == nil {
			t.Errorf("%s with a cancelled context succeeds", name)
		}
		for _, d := range decisions {
			if errors.Is(err, d) {
				t.Errorf("%s with a cancelled context decides something: %v", name, err)
			}
		}
	}
}

// eventually polls until done says so. It is for what is eventually consistent
// or takes real time; 10 seconds are the most it may take.
func eventually(t T, what string, done func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: not within 10 s", what)
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, t.Context().Err())
		}
	}
}

// stays polls for d that nothing is wrong.
func stays(t T, what string, d time.Duration, right func() bool) {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		if !right() {
			t.Fatalf("%s: no longer", what)
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, t.Context().Err())
		}
	}
}

// stored is v as a store gives it back: times in whole milliseconds, UTC, and
// nothing between empty and absent. A bitmap without a bit is empty.
func stored[V any](v V) V {
	c := reflect.New(reflect.TypeOf(v)).Elem()
	c.Set(reflect.ValueOf(v))
	normalise(c)
	return c.Interface().(V)
}

// normalise does that in place; what v points to is left alone.
func normalise(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		if !x.IsZero() {
			*x = time.UnixMilli(x.UnixMilli()).UTC()
		}
		return
	case *batch.Bitmap:
		if x.Count() == 0 {
			*x = nil
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, f := range v.Fields() {
			normalise(f)
		}
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 {
			v.SetZero()
		}
	}
}

// same demands that what a store gave is want. Times that it gave must be in
// whole milliseconds and UTC already. Fields named in but are not compared.
func same[V any](t T, what string, got, want V, but ...string) {
	t.Helper()
	if d := diff(got, want, but...); d != "" {
		t.Errorf("%s:%s", what, d)
	}
}

// diff is "" if got is want, else a line for each field that is not.
func diff[V any](got, want V, but ...string) string {
	var b strings.Builder
	g, w := reflect.ValueOf(stored(got)), reflect.ValueOf(stored(want))
	for f, wf := range w.Fields() {
		gf := g.FieldByIndex(f.Index)
		raw := reflect.ValueOf(got).FieldByIndex(f.Index)
		skip := false
		for _, name := range but {
			skip = skip || name == f.Name
		}
		if at, ok := raw.Interface().(time.Time); ok && !skip && !reflect.DeepEqual(at, gf.Interface()) {
			fmt.Fprintf(&b, "\n  %s = %v, which is not whole milliseconds in UTC", f.Name, at)
		}
		if !skip && !reflect.DeepEqual(gf.Interface(), wf.Interface()) {
			fmt.Fprintf(&b, "\n  %s = %s\n    want %s", f.Name, show(gf), show(wf))
		}
	}
	return b.String()
}

func show(v reflect.Value) string {
	s := fmt.Sprintf("%+v", v.Interface())
	if v.Kind() == reflect.String {
		s = fmt.Sprintf("%q", s)
	}
	if len(s) > 400 {
		s = fmt.Sprintf("%s… (%d bytes)", s[:400], len(s))
	}
	return s
}
