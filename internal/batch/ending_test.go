package batch_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// What was checkpointed is in the files; every other line is there too, in its
// place, with the id of a replay and its custom_id byte for byte.
func TestFinishEndsEarly(t *testing.T) {
	for _, how := range []batch.Status{batch.Cancelled, batch.Expired} {
		t.Run(string(how), func(t *testing.T) {
			w := newWorld(t)
			e := w.everyState()
			e.end(how, wNow)
			w.restart()
			b, err := w.finisher(nil).Finish(t.Context(), wTenant, e.ID, wNow)
			must(t, err)
			e.expect(how)
			if b.Status != how || b.CancelledAt.IsZero() != (how == batch.Expired) || b.ExpiredAt.IsZero() != (how == batch.Cancelled) || !b.CompletedAt.IsZero() {
				t.Errorf("answered %+v", b)
			}
			// Consecutive parts without results are read in one stream.
			if n := w.faults.Count("Objects.Open"); n > len(e.chunksOnce())+3 {
				t.Errorf("%d opens for %d chunks", n, len(e.chunksOnce()))
			}
		})
	}
}

// chunksOnce are the keys of the chunks that the parts name.
func (e *ended) chunksOnce() (keys []string) {
	for _, p := range e.parts() {
		for _, c := range p.Chunks {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

func TestFinishEndsEarlyWithNothingDone(t *testing.T) {
	w := newWorld(t)
	e := w.awkward(23, 5)
	e.end(batch.Cancelled, wNow)
	_, err := w.finisher(nil).Finish(t.Context(), wTenant, e.ID, wNow)
	must(t, err)
	e.expect(batch.Cancelled)
}

// breaks is Parts whose reading fails after the last part.
type breaks struct{ batch.Parts }

func (p breaks) All(ctx context.Context, tenant, id string) iter.Seq2[batch.Part, error] {
	return func(yield func(batch.Part, error) bool) {
		for part, err := range p.Parts.All(ctx, tenant, id) {
			if !yield(part, err) {
				return
			}
		}
		yield(batch.Part{}, errors.New("no more pages"))
	}
}

// The parts can't be read on while seals are under way, which fail too. The race
// detector is the judge of this test.
func TestEndingWithTroubleAtOnce(t *testing.T) {
	w := newWorld(t)
	e := w.awkward(23, 5)
	e.end(batch.Cancelled, wNow)
	w.restart().Before("Seals.Seal", 0, memory.Fail(batch.ErrNotFound))
	f, err := batch.NewFinisher(batch.FinisherPorts{
		Batches: w.m.Table.Batches, Endings: w.m.Table.Endings, Parts: breaks{w.m.Table.Parts}, Seals: w.m.Table.Seals, Files: w.m.Table.Files,
		Objects: w.m.Objects, Uploads: w.m.Objects,
	}, wResults, nil)
	must(t, err)
	if _, err := f.Finish(t.Context(), wTenant, e.ID, wNow); err == nil || errors.Is(err, batch.ErrNotFound) {
		t.Errorf("error %v", err)
	}
}

// A part that was dead for too long is sealed (by the reaper); its batch, which
// goes on to its end, says so in each line of it that has no result.
func TestFinishOfADeadPart(t *testing.T) {
	w := newWorld(t)
	e := w.awkward(20, 10)
	e.code = openai.CodePartDead
	must(t, w.truth.Table.Claims.Finish(t.Context(), e.hold(1, wNow, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), 10, wNow))
	e.hold(0, wNow, []int{3})
	p := e.parts()[0]
	p.State, p.Owner = batch.Sealed, ""
	w.truth.Table.SeedPart(p)
	_, err := w.finisher(nil).Finish(t.Context(), wTenant, e.ID, wNow)
	must(t, err)
	e.expect(batch.Completed)
}

// Live workers have their time, which ends; what they save in it counts, and
// what they save later is refused. Nobody waits for parts that nobody holds.
func TestFinishWaitsForWorkersToDrain(t *testing.T) {
	const drain = 90 * time.Second
	w := newWorld(t)
	e := w.awkward(50, 10)
	far := wNow.Add(time.Hour)
	saves, stuck, lapses := e.hold(0, far, []int{0}), e.hold(1, far, []int{0}), e.hold(2, wNow.Add(30*time.Second), []int{0})
	e.end(batch.Cancelled, wNow)
	finish := func(after time.Duration) error {
		_, err := w.finisher(&batch.FinisherOptions{Drain: drain}).Finish(t.Context(), wTenant, e.ID, wNow.Add(after))
		return err
	}
	states := func() (s string) {
		for _, p := range e.parts() {
			s += string(p.State[:1])
		}
		return s
	}
	for _, step := range []struct {
		after time.Duration
		do    func() error
		want  string // first letters of the parts' states
	}{
		{0, func() error { return nil }, "lllss"},
		{20 * time.Second, func() error { return e.checkpoint(saves, far, 4, 7) }, "lllss"},
		{34 * time.Second, func() error { return nil }, "lllss"}, // lapsed, but for the skew
		{36 * time.Second, func() error { return w.truth.Table.Claims.HandOver(t.Context(), saves, 0, wNow, wNow) }, "slsss"},
		{drain - time.Millisecond, func() error { return e.checkpoint(stuck, far, 5) }, "slsss"},
	} {
		must(t, step.do())
		if err := finish(step.after); !errors.Is(err, batch.ErrDraining) {
			t.Fatalf("after %s: %v", step.after, err)
		}
		if got := states(); got != step.want {
			t.Fatalf("after %s the parts are %s, want %s", step.after, got, step.want)
		}
	}
	must(t, finish(drain))
	for name, c := range map[string]batch.Claim{"handed over": saves, "sealed while held": stuck, "lapsed": lapses} {
		if err := e.checkpoint(c, far, 9); !errors.Is(err, lease.ErrLost) {
			t.Errorf("%s: a late checkpoint: %v", name, err)
		}
	}
	must(t, w.truth.Objects.Delete(t.Context(), wResults, w.chunks())) // the late ones, which nobody names
	e.expect(batch.Cancelled)
}

// Whatever the holder writes in the last instant before the seal counts:
//
//	finisher reads the part at version 5 and is about to seal it
//	worker   checkpoints, finishes, or hands over: version 6
//	finisher is refused, reads again, seals version 6, and only then reads chunks
func TestWritesInTheLastInstant(t *testing.T) {
	past := wNow.Add(-time.Hour) // lapsed, so that the finisher doesn't wait
	for name, write := range map[string]func(*ended, batch.Claim) error{
		"checkpoint": func(e *ended, c batch.Claim) error { return e.checkpoint(c, past, 3, 6) },
		"many checkpoints": func(e *ended, c batch.Claim) error {
			return errors.Join(e.checkpoint(c, past, 3), e.checkpoint(c, past, 6), e.checkpoint(c, past, 1, 9))
		},
		"heartbeat": func(e *ended, c batch.Claim) error {
			return e.w.truth.Table.Claims.Heartbeat(e.t.Context(), c, 0, past.Add(time.Second), wNow)
		},
		"the rest and finish": func(e *ended, c batch.Claim) error {
			return errors.Join(e.checkpoint(c, past, 1, 2, 3, 4, 5, 6, 7, 8, 9), e.w.truth.Table.Claims.Finish(e.t.Context(), c, 10, wNow))
		},
		"checkpoint and hand over": func(e *ended, c batch.Claim) error {
			return errors.Join(e.checkpoint(c, past, 8), e.w.truth.Table.Claims.HandOver(e.t.Context(), c, 0, wNow, wNow))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			e := w.awkward(10, 10)
			c := e.hold(0, past, []int{0})
			e.end(batch.Cancelled, wNow)
			f := w.restart()
			f.Before("Seals.Seal", 1, func(context.Context, memory.Point) error { return write(e, c) })
			_, err := w.finisher(nil).Finish(t.Context(), wTenant, e.ID, wNow)
			must(t, err)
			want := 2 // the first one was refused
			if e.parts()[0].State == batch.Done {
				want = 1
			}
			if got := f.Count("Seals.Seal"); got != want {
				t.Errorf("%d seals of a part that is %s", got, e.parts()[0].State)
			}
			e.expect(batch.Cancelled)
		})
	}
}

// A holder that writes faster than it can be sealed is met again later.
func TestSealOfAPartThatNeverStandsStill(t *testing.T) {
	w := newWorld(t)
	e := w.awkward(10, 10)
	past := wNow.Add(-time.Hour)
	c := e.hold(0, past)
	e.end(batch.Cancelled, wNow)
	w.restart().Before("Seals.Seal", 0, func(context.Context, memory.Point) error {
		return w.truth.Table.Claims.Heartbeat(t.Context(), c, 0, past, wNow)
	})
	_, err := w.finisher(nil).Finish(t.Context(), wTenant, e.ID, wNow)
	if !errors.Is(err, batch.ErrStale) || w.batch(e.ID).Status != batch.InProgress {
		t.Errorf("got %v, batch %s", err, w.batch(e.ID).Status)
	}
	w.restart()
	_, err = w.finisher(nil).Finish(t.Context(), wTenant, e.ID, wNow)
	must(t, err)
	e.expect(batch.Cancelled)
}

// As TestFinishSurvivesEveryCall, for a batch that ends early.
func TestFinishEarlySurvivesEveryCall(t *testing.T) {
	clean := newWorld(t)
	e := clean.everyState()
	e.end(batch.Cancelled, wNow)
	clean.restart()
	_, err := clean.finisher(nil).Finish(t.Context(), wTenant, e.ID, wNow)
	must(t, err)
	seals := 0
	for _, p := range clean.faults.Calls() {
		if p.Op == "Seals.Seal" {
			seals++
		}
		for when, arm := range timings {
			t.Run(p.String()+" "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					e := w.everyState()
					e.end(batch.Cancelled, wNow)
					before := w.chunks()
					arm(w.restart(), p)
					_, firstErr := w.finisher(nil).Finish(t.Context(), wTenant, e.ID, wNow)
					if !w.batch(e.ID).Status.Terminal() {
						if firstErr == nil {
							t.Error("success without an end")
						}
						if left := w.chunks(); !slices.Equal(left, before) {
							t.Errorf("not closed, and of %d chunks %d are left", len(before), len(left))
						}
					}
					w.restart()
					now := wNow.Add(time.Second)
					if errors.Is(firstErr, memory.ErrCrashed) {
						now = wNow.Add(10 * time.Minute)
					}
					_, err := w.finisher(nil).Finish(t.Context(), wTenant, e.ID, now)
					must(t, err)
					e.expect(batch.Cancelled)
				})
			})
		}
	}
	if seals != 5 {
		t.Errorf("%d seals of 5 open parts", seals)
	}
}

// As TestTwoFinishers, while there are parts to seal.
func TestTwoFinishersOfABatchThatEndsEarly(t *testing.T) {
	clean := newWorld(t)
	e := clean.everyState()
	e.end(batch.Expired, wNow)
	clean.restart()
	_, err := clean.finisher(nil).Finish(t.Context(), wTenant, e.ID, wNow)
	must(t, err)
	for _, p := range clean.faults.Calls() {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				e := w.everyState()
				e.end(batch.Expired, wNow)
				gate := memory.NewGate()
				w.restart().Before(p.Op, p.N, gate.Wait)
				first := w.finisher(nil)
				done := make(chan error)
				go func() {
					_, err := first.Finish(t.Context(), wTenant, e.ID, wNow)
					done <- err
				}()
				<-gate.Reached()
				w.restart()
				_, err := w.finisher(nil).Finish(t.Context(), wTenant, e.ID, wNow.Add(10*time.Minute))
				must(t, err)
				closed := w.batch(e.ID)
				gate.Open()
				if err := <-done; err != nil {
					t.Errorf("the first says %v, of a batch that is closed", err)
				}
				e.expect(batch.Expired)
				if now := w.batch(e.ID); now.Ver != closed.Ver {
					t.Errorf("the first wrote to the closed batch: %+v", now)
				}
			})
		})
	}
}

// A line may count as unsent only if no checkpoint says otherwise, and only if
// its id can be read.
func TestFinishEarlyRefusesWhatDoesNotAddUp(t *testing.T) {
	rewrite := func(w *world, e *ended, change func([]byte) []byte) {
		o := e.Input.Object
		_, err := w.truth.Objects.Put(w.t.Context(), o, change(slices.Clone(w.truth.Objects.Bytes(o.Bucket, o.Key))))
		must(w.t, err)
	}
	for name, spoil := range map[string]func(*world, *ended, *batch.Part){
		"a chunk is lost from the list": func(_ *world, _ *ended, p *batch.Part) { p.Chunks = p.Chunks[:1] },
		"a chunk is gone": func(w *world, _ *ended, p *batch.Part) {
			must(w.t, w.truth.Objects.Delete(w.t.Context(), wResults, []string{p.Chunks[0].Key}))
		},
		"a chunk that no checkpoint counted": func(w *world, _ *ended, p *batch.Part) {
			p.Chunks = append(p.Chunks, w.chunk("foreign", []int64{p.FirstLine + 5}, mixed))
		},
		"a bit without a result":  func(_ *world, _ *ended, p *batch.Part) { p.DoneLines.Set(6) },
		"a part begins elsewhere": func(_ *world, _ *ended, p *batch.Part) { p.From++ },
		"a part ends earlier":     func(_ *world, _ *ended, p *batch.Part) { p.To -= 250 },
		"another physical number": func(_ *world, _ *ended, p *batch.Part) { p.FirstPhysical++ },
		"the input is gone": func(w *world, e *ended, _ *batch.Part) {
			must(w.t, w.truth.Objects.Delete(w.t.Context(), e.Input.Object.Bucket, []string{e.Input.Object.Key}))
		},
		"the input was overwritten": func(w *world, e *ended, _ *batch.Part) {
			rewrite(w, e, func(b []byte) []byte { b[len(b)-20] ^= 1; return b })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			e := w.everyState()
			e.end(batch.Cancelled, wNow)
			p := e.parts()[2]
			p.Ver++
			spoil(w, e, &p)
			w.truth.Table.SeedPart(p)
			before := w.chunks()
			_, err := w.finisher(nil).Finish(t.Context(), wTenant, e.ID, wNow)
			if !errors.Is(err, batch.ErrConservation) {
				t.Errorf("got %v", err)
			}
			if got := w.batch(e.ID); got.Status.Terminal() || got.OutputFileID != "" {
				t.Errorf("batch is %s", got.Status)
			}
			if left := w.chunks(); !slices.Equal(left, before) {
				t.Errorf("of %d chunks %d are left", len(before), len(left))
			}
		})
	}
}

// The bound that sizes pieces: no result of an unsent line is longer.
func TestLongestUnsentResult(t *testing.T) {
	id := `"`
	for range openai.MaxCustomID {
		id += `\ud83d\ude00`
	}
	for _, code := range []string{openai.CodeBatchCancelled, openai.CodeBatchExpired, openai.CodePartDead} {
		l := openai.NoReply(openai.RequestResultID(fmt.Sprintf("batch_%074d", 1), 1), []byte(id+`"`), code).Append(nil)
		if len(l) > 1<<10 {
			t.Errorf("%s: %d bytes", code, len(l))
		}
	}
}
