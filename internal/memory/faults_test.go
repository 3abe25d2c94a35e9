package memory_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a store with a batch whose ending is decided and a pending part of
// one line.
func world(t *testing.T) *memory.Table {
	t.Helper()
	s := memory.NewTable(nil)
	s.SeedBatch(batch.Batch{Tenant: "t", ID: "b", Status: batch.InProgress, Ending: batch.Completed})
	s.SeedPart(batch.Part{PartKey: batch.PartKey{Tenant: "t", Batch: "b"}, State: batch.Pending, Lines: 1})
	return s
}

var claim = batch.Claim{PartKey: batch.PartKey{Tenant: "t", Batch: "b"}, Token: "mine"}

// steps is a worker's and a finisher's writes in order, each of which recognises
// its own lost answer.
func steps(s *memory.Table) []func(context.Context) error {
	tok := lease.Token("mine")
	return []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := s.Claims.Claim(ctx, claim, "task", 3, now, now)
			return err
		},
		func(ctx context.Context) error {
			k := batch.Checkpoint{To: 1, Done: batch.Bitmap{1}, Chunk: batch.Chunk{Key: "k", N: 1, OK: 1}}
			return s.Claims.Checkpoint(ctx, claim, k, now, now)
		},
		func(ctx context.Context) error { return s.Claims.Finish(ctx, claim, 1, now) },
		func(ctx context.Context) error {
			_, err := s.Endings.Finalize(ctx, "t", "b", tok, now, now, now)
			return err
		},
		func(ctx context.Context) error {
			return s.Files.Put(ctx, batch.File{Tenant: "t", ID: "file-1", CreatedAt: now})
		},
		func(ctx context.Context) error {
			_, err := s.Endings.Close(ctx, "t", "b", tok, batch.Closed{OutputFileID: "file-1"}, now)
			return err
		},
	}
}

func look(s *memory.Table) string {
	b, _ := s.Batch("t", "b")
	return fmt.Sprintf("%+v %+v %+v", b, s.PartsOf("t", "b"), s.FilesOf("t"))
}

// TestLostAnswers fails every step before it takes effect and after, and
// retries: the store ends up exactly as if nothing had gone wrong.
func TestLostAnswers(t *testing.T) {
	clean := memory.NewFaults()
	s := world(t)
	for i, do := range steps(s.With(clean)) {
		if err := do(t.Context()); err != nil {
			t.Fatalf("step %d: %v", i+1, err)
		}
	}
	want := look(s)
	if n := len(clean.Calls()); n != 6 {
		t.Fatalf("%d calls", n)
	}
	for _, p := range clean.Calls() {
		for name, place := range map[string]func(*memory.Faults, string, int, memory.Hook){
			"before": (*memory.Faults).Before, "after": (*memory.Faults).After,
		} {
			t.Run(name+" "+p.String(), func(t *testing.T) {
				f, s := memory.NewFaults(), world(t)
				place(f, p.Op, p.N, memory.Fail(nil))
				for i, do := range steps(s.With(f)) {
					untouched := look(s)
					err := do(t.Context())
					if (i+1 == p.Step) != errors.Is(err, memory.ErrInjected) {
						t.Fatalf("step %d: %v", i+1, err)
					}
					if err != nil && (look(s) == untouched) != (name == "before") {
						t.Errorf("a fault %s the effect: effect %t", name, look(s) != untouched)
					}
					if err != nil {
						err = do(t.Context())
					}
					if err != nil {
						t.Fatalf("step %d again: %v", i+1, err)
					}
				}
				if got := look(s); got != want {
					t.Errorf("the store is\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

func TestCrashEndsOneProcess(t *testing.T) {
	s, f := world(t), memory.NewFaults()
	dead, alive := s.With(f), s.With(memory.NewFaults())
	f.After("Claims.Claim", 1, f.Crash)
	if _, err := dead.Claims.Claim(t.Context(), claim, "", 3, now, now); !errors.Is(err, memory.ErrCrashed) {
		t.Fatalf("claim: %v", err)
	}
	before := look(s)
	if err := dead.Claims.HandOver(t.Context(), claim, 0, now, now); !errors.Is(err, memory.ErrCrashed) {
		t.Errorf("a dead process's write: %v", err)
	}
	if look(s) != before {
		t.Error("a dead process's write took effect")
	}
	other := claim
	other.Token = "other"
	if _, err := alive.Claims.Claim(t.Context(), other, "", 3, now, now); !errors.Is(err, lease.ErrHeld) {
		t.Errorf("a claim by the process that lives: %v", err)
	}
}

func TestStepsAndEveryCall(t *testing.T) {
	f := memory.NewFaults()
	s := memory.NewTable(f)
	boom := errors.New("boom")
	f.Before("", 2, memory.Fail(boom))
	f.Before("Parts.Get", 0, memory.Fail(memory.ErrInjected))
	get := func() error {
		_, err := s.Batches.Get(t.Context(), "t", "b")
		return err
	}
	if err := get(); !errors.Is(err, batch.ErrNotFound) {
		t.Errorf("step 1: %v", err)
	}
	if err := get(); !errors.Is(err, boom) {
		t.Errorf("step 2: %v", err)
	}
	if err := get(); !errors.Is(err, batch.ErrNotFound) {
		t.Errorf("step 3: %v", err)
	}
	for range 2 {
		if _, err := s.Parts.Get(t.Context(), claim.PartKey); !errors.Is(err, memory.ErrInjected) {
			t.Errorf("every call: %v", err)
		}
	}
	if f.Count("Batches.Get") != 3 || f.Count("Parts.Get") != 2 || f.Count("Claims.Claim") != 0 {
		t.Errorf("calls: %v", f.Calls())
	}
	if last := f.Calls()[4]; last != (memory.Point{Op: "Parts.Get", N: 2, Step: 5}) {
		t.Errorf("the last call is %+v", last)
	}
}

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, g := memory.NewFaults(), memory.NewGate()
		f.Before("Files.Get", 1, g.Wait)
		s := memory.NewTable(f)
		done := make(chan error, 1)
		go func() {
			_, err := s.Files.Get(t.Context(), "t", "f")
			done <- err
		}()
		<-g.Reached()
		synctest.Wait()
		if len(done) != 0 {
			t.Fatal("the call went through a closed gate")
		}
		g.Open()
		if err := <-done; !errors.Is(err, batch.ErrNotFound) {
			t.Errorf("after the gate: %v", err)
		}

		f.Before("Files.Get", 2, memory.NewGate().Wait) // opens never
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Files.Get(ctx, "t", "f"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("at a gate that stays closed: %v", err)
		}
	})
}

func TestTornStream(t *testing.T) {
	f := memory.NewFaults()
	f.Before("Objects.Read", 3, memory.Fail(io.ErrUnexpectedEOF))
	s := memory.NewObjects(f)
	o, err := s.Put(t.Context(), batch.Object{Bucket: "b", Key: "k"}, make([]byte, 100))
	if err != nil {
		t.Fatal(err)
	}
	read := func() (n int, err error) {
		r, err := s.Open(t.Context(), o, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for err == nil {
			var m int
			m, err = r.Read(make([]byte, 40))
			n += m
		}
		return n, err
	}
	if n, err := read(); n != 80 || err != io.ErrUnexpectedEOF {
		t.Errorf("torn: %d bytes, %v", n, err)
	}
	if n, err := read(); n != 100 || err != io.EOF {
		t.Errorf("whole: %d bytes, %v", n, err)
	}
	if calls := f.Calls(); len(calls) != 3 || f.Count("Objects.Read") != 7 {
		t.Errorf("calls %v, reads %d", calls, f.Count("Objects.Read"))
	}
}

func TestQueueVisibility(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memory.NewQueue(nil)
		q.Visibility(time.Minute)
		if err := q.Send(t.Context(), batch.Message{Part: 1}, 0); err != nil {
			t.Fatal(err)
		}
		d, err := q.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		memory.Wait(t.Context(), time.Minute-1)
		if _, err := q.Receive(t.Context()); !errors.Is(err, batch.ErrEmpty) {
			t.Errorf("while hidden: %v", err)
		}
		memory.Wait(t.Context(), 1)
		if err := q.Hide(t.Context(), d, time.Minute); !errors.Is(err, batch.ErrNotFound) {
			t.Errorf("hide once it is visible again: %v", err)
		}
		if d, err := q.Receive(t.Context()); err != nil || d.Receives != 2 {
			t.Errorf("received %+v, %v", d, err)
		}
		if m := q.Messages(); len(m) != 1 || m[0].Receives != 2 || m[0].Part != 1 {
			t.Errorf("messages %+v", m)
		}
	})
}

func TestWorkflowRecords(t *testing.T) {
	w := memory.NewWorkflow(nil)
	for range 2 {
		if err := errors.Join(w.Start(t.Context(), "b", "t", "b"), w.Finish(t.Context(), "b-finish-1", "t", "b"), w.Stop(t.Context(), "b")); err != nil {
			t.Fatal(err)
		}
	}
	if !w.Stopped("b") || w.Stopped("b-finish-1") {
		t.Error("the wrong execution was stopped")
	}
	for range 2 {
		if err := w.Report(t.Context(), "token"); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.Executions(); !slices.Equal(got, []memory.Execution{{Name: "b", Tenant: "t", Batch: "b"}, {Name: "b-finish-1", Tenant: "t", Batch: "b", Finish: true}}) {
		t.Errorf("executions %v", got)
	}
	if got := w.Reports(); !slices.Equal(got, []string{"token", "token"}) {
		t.Errorf("reports %v", got)
	}
}

func TestModelCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory.NewModel(nil, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			return batch.Reply{Status: 200}, memory.Wait(ctx, time.Duration(c.Line)*time.Second)
		})
		for _, n := range []int64{1, 1, 2, 3} {
			go m.Call(t.Context(), batch.Call{Tenant: "t", Batch: "b", Line: n})
		}
		synctest.Wait()
		if now, most := m.InFlight(); now != 4 || most != 4 {
			t.Errorf("in flight %d, at most %d", now, most)
		}
		memory.Wait(t.Context(), 2500*time.Millisecond)
		if now, most := m.InFlight(); now != 1 || most != 4 {
			t.Errorf("in flight %d, at most %d", now, most)
		}
		if got := m.Counts("t", "b"); len(got) != 3 || got[1] != 2 || m.Count("t", "b", 3) != 1 || m.Count("t", "b", 4) != 0 {
			t.Errorf("counts %v", got)
		}
		if got := m.Calls(); len(got) != 4 {
			t.Errorf("%d calls", len(got))
		}
		memory.Wait(t.Context(), time.Second)
	})
}

func TestDropUnknownClause(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a clause that doesn't exist was dropped")
		}
	}()
	memory.New(memory.Options{Drop: "C8.form"})
}
