package server_test

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/memory"
)

func TestResentCreate(t *testing.T) {
	h := newHouse(t)
	c := createCall(h.file())
	first := h.do(c.resent(0)).id()
	for n, after := range []time.Duration{time.Second, time.Minute, 15*time.Minute - time.Second} {
		h.now = start.Add(after)
		if got := h.do(c.resent(n + 1)).id(); got != first {
			t.Errorf("sent again after %s: %s, not %s", after, got, first)
		}
	}
	h.wants("acme", 1)
	h.now = start.Add(15 * time.Minute)
	if got := h.do(c.resent(1)).id(); got == first {
		t.Error("found after 15 minutes")
	}
	h.wants("acme", 2)
}

func TestWhatIsNoResend(t *testing.T) {
	h := newHouse(t)
	c := createCall(h.file())
	ids := []string{h.do(c.resent(0)).id(), h.do(c.resent(0)).id(), h.do(c).id()}
	for _, odd := range []string{"-1", "x", "1.5", "1,1", "", "99999999999999999999"} {
		ids = append(ids, h.do(c.with("X-Stainless-Retry-Count", odd)).id())
	}
	ids = append(ids, h.do(c.window("1h").resent(1)).id())
	other := c.resent(1)
	other.as = "acme both" // another principal
	ids = append(ids, h.do(other).id())
	slices.Sort(ids)
	if n := len(slices.Compact(slices.Clone(ids))); n != len(ids) {
		t.Errorf("%d batches of %d requests", n, len(ids))
	}
	h.wants("acme", len(ids))
	foreign := createCall(h.fileOf("other both")).resent(1)
	foreign.as = "other both"
	h.do(foreign).id()
	if b, _ := h.count("other"); b != 1 {
		t.Errorf("the other tenant has %d", b)
	}
}

// A key says more than a count.
func TestResentWithAKey(t *testing.T) {
	h := newHouse(t)
	c := createCall(h.file())
	a, b := h.do(c.keyed("a").resent(0)).id(), h.do(c.keyed("b").resent(1)).id()
	if again := h.do(c.keyed("a").resent(1)).id(); a == b || again != a {
		t.Errorf("%s, %s, %s", a, b, again)
	}
	h.wants("acme", 2)
}

// Every call fails, loses its answer or is the process's last; the client sends
// the create again, as official ones do. One batch, and it runs.
func TestResentCreateAfterEveryFault(t *testing.T) {
	clean := newHouse(t)
	c := createCall(clean.file())
	clean.restart(memory.NewFaults())
	clean.do(c.resent(0)).id()
	type arm func(f *memory.Faults, p memory.Point)
	for _, p := range clean.faults.Calls() {
		for how, arm := range map[string]arm{
			"fails":      func(f *memory.Faults, p memory.Point) { f.Before(p.Op, p.N, memory.Fail(nil)) },
			"is lost":    func(f *memory.Faults, p memory.Point) { f.After(p.Op, p.N, memory.Fail(nil)) },
			"ends it":    func(f *memory.Faults, p memory.Point) { f.Before(p.Op, p.N, f.Crash) },
			"is the end": func(f *memory.Faults, p memory.Point) { f.After(p.Op, p.N, f.Crash) },
		} {
			t.Run(p.String()+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHouse(t)
					c := createCall(h.file())
					f := memory.NewFaults()
					arm(f, p)
					h.restart(f)
					first := h.do(c.resent(0))
					h.restart(memory.NewFaults())
					second := h.do(c.resent(1)).id()
					if third := h.do(c.resent(2)).id(); third != second || first.Code == http.StatusOK && first.id() != second {
						t.Errorf("%s, %s, %s", first.Body, second, third)
					}
					h.wants("acme", 1)
				})
			})
		}
	}
}

// The first send is still at work when its resend arrives, or its answer is lost
// with the connection.
func TestResentWhileTheFirstIsStillRunning(t *testing.T) {
	for _, op := range []string{"Files.Get", "Batches.Create", "Workflow.Start"} {
		t.Run(op, func(t *testing.T) {
			h := newHouse(t)
			c := createCall(h.file())
			f, gate := memory.NewFaults(), memory.NewGate()
			f.Before(op, 1, gate.Wait)
			h.restart(f)
			first := make(chan string)
			go func() { first <- h.do(c.resent(0)).id() }()
			<-gate.Reached()
			h.restart(memory.NewFaults())
			second := h.do(c.resent(1)).id()
			gate.Open()
			if got := <-first; got != second {
				t.Errorf("%s, %s", got, second)
			}
			h.wants("acme", 1)
		})
	}
}
