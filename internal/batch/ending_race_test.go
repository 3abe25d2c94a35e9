package batch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// cancelRig is a batch that a real worker runs, 40 lines in two parts, with
// checkpoints after 6 lines.
func cancelRig(t *testing.T) *rig {
	r := newRig(t, 40, 20, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
		if err := memory.Wait(ctx, time.Duration(1+c.Line%5)*time.Second); err != nil {
			return batch.Reply{}, err
		}
		return batch.Reply{Status: 200, Body: []byte(`{"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)}, nil
	})
	r.opts = batch.RunnerOptions{Concurrency: 4, CheckpointLines: 6}
	return r
}

// cancel is somebody else's, on stores without faults.
func (r *rig) cancel() error {
	_, err := batch.NewEnder(r.m.Table.Batches, r.m.Table.Endings, r.m.Workflow).Cancel(r.t.Context(), tenant, batchID, time.Now())
	return err
}

// finish finishes as the workflow does: again while workers drain. It says how
// long that took.
func (r *rig) finish() time.Duration {
	r.t.Helper()
	f, err := batch.NewFinisher(batch.FinisherPorts{
		Batches: r.m.Table.Batches, Endings: r.m.Table.Endings, Parts: r.m.Table.Parts, Seals: r.m.Table.Seals, Files: r.m.Table.Files,
		Objects: r.m.Objects, Uploads: r.m.Objects,
	}, results, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	began := time.Now()
	for {
		_, err := f.Finish(r.t.Context(), tenant, batchID, time.Now())
		if err == nil {
			return time.Since(began)
		}
		if !errors.Is(err, batch.ErrDraining) || time.Since(began) > 10*time.Minute {
			r.t.Fatalf("after %s: %v", time.Since(began), err)
		}
		r.pass(3 * time.Second)
	}
}

// outcome reads the result files and proves them: every line once, in order,
// with its id. It gives which lines the model answered.
func (r *rig) outcome() map[int64]bool {
	r.t.Helper()
	replied, seen := map[int64]bool{}, map[int64]bool{}
	for _, kind := range []string{batch.OutputFile, batch.ErrorFile} {
		last := int64(-1)
		for raw := range bytes.Lines(r.m.Objects.Bytes(results, batch.ResultKey(tenant, batchID, kind))) {
			var res struct {
				ID       string
				CustomID string `json:"custom_id"`
				Error    *struct{ Code string }
			}
			var line int64
			if err := json.Unmarshal(raw, &res); err != nil {
				r.t.Fatal(err)
			}
			if _, err := fmt.Sscanf(res.CustomID, "<id-%d>", &line); err != nil || line <= last || seen[line] {
				r.t.Fatalf("%s file: line %q after %d (%v): lost its place, or is there twice", kind, res.CustomID, last, err)
			}
			last, seen[line] = line, true
			if want := openai.RequestResultID(batchID, int(line)+1); res.ID != want {
				r.t.Errorf("line %d has the id %s, want %s", line, res.ID, want)
			}
			if replied[line] = kind == batch.OutputFile; !replied[line] {
				delete(replied, line)
				if res.Error == nil || res.Error.Code != openai.CodeBatchCancelled {
					r.t.Errorf("line %d: %s", line, raw)
				}
			}
		}
	}
	b, _ := r.m.Table.Batch(tenant, batchID)
	if want := (batch.Counts{Total: 40, Completed: int64(len(replied)), Failed: int64(40 - len(replied))}); len(seen) != 40 || b.Status != batch.Cancelled || b.Counts != want {
		r.t.Errorf("%d lines; batch %s %+v, want %+v", len(seen), b.Status, b.Counts, want)
	}
	if n := bytes.Count(r.m.Objects.Bytes(results, batch.ResultKey(tenant, batchID, batch.ReceiptsFile)), []byte("\n")); n != len(replied) {
		r.t.Errorf("%d receipts for %d replies", n, len(replied))
	}
	r.receiptsAgree()
	return replied
}

// sent is which lines the model was sent.
func (r *rig) sent() map[int64]bool {
	all := map[int64]bool{}
	for _, c := range r.model.Calls() {
		all[c.Line] = true
	}
	return all
}

// work runs whatever messages there are, until none is visible.
func (r *rig) work(ctx context.Context, f *memory.Faults) {
	for ctx.Err() == nil {
		d, ok := r.receive()
		if !ok {
			return
		}
		r.runDelivery(ctx, f, d, life)
	}
}

// points are the calls that a worker makes over the whole batch.
func points(t *testing.T) (all []memory.Point) {
	synctest.Test(t, func(t *testing.T) {
		r, f := cancelRig(t), memory.NewFaults()
		r.work(t.Context(), f)
		all = f.Calls()
	})
	if len(all) < 30 {
		t.Fatalf("only %d calls", len(all))
	}
	return all
}

// A cancel comes at each call of a worker that lives. The worker saves what is
// under way: whatever the model was sent has its reply in the files, although
// not one line more is sent than was when the worker saw the cancel.
func TestCancelMeetsALiveWorker(t *testing.T) {
	for _, p := range points(t) {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, f := cancelRig(t), memory.NewFaults()
				cancelled := make(chan struct{})
				f.Before(p.Op, p.N, func(context.Context, memory.Point) error {
					defer close(cancelled)
					return r.cancel()
				})
				done := make(chan struct{})
				go func() { defer close(done); r.work(t.Context(), f) }()
				<-cancelled
				took := r.finish()
				<-done
				replied := r.outcome()
				for line := range r.sent() {
					if !replied[line] {
						t.Errorf("line %d was sent, and its reply is lost", line)
					}
				}
				if took > 30*time.Second {
					t.Errorf("a worker that is done in seconds was waited for %s", took)
				}
				if n := len(r.m.Queue.Messages()); n > 0 {
					t.Errorf("%d messages are left", n)
				}
			})
		})
	}
}

// The worker dies at the instant of the cancel. What it checkpointed is in the
// files; nobody is waited for longer than its lease or the drain.
func TestCancelMeetsADeath(t *testing.T) {
	for _, p := range points(t) {
		for when, place := range map[string]func(*memory.Faults, string, int, memory.Hook){"before": (*memory.Faults).Before, "after": (*memory.Faults).After} {
			t.Run(when+" "+p.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, f := cancelRig(t), memory.NewFaults()
					ctx, die := context.WithCancel(t.Context())
					defer die()
					place(f, p.Op, p.N, func(hookCtx context.Context, at memory.Point) error {
						if err := r.cancel(); err != nil {
							t.Error(err)
						}
						die()
						return f.Crash(hookCtx, at)
					})
					r.work(ctx, f)
					saved := r.records()
					if took := r.finish(); took > 2*time.Minute+3*time.Second {
						t.Errorf("finished after %s", took)
					}
					replied := r.outcome()
					if len(replied) != len(saved) {
						t.Errorf("%d lines were checkpointed, %d are in the output file", len(saved), len(replied))
					}
				})
			})
		}
	}
}

// A worker stops at one of its calls, for longer than its lease and the drain,
// and goes on when the batch is closed: it can write nothing that counts.
func TestCancelMeetsAStalledWorker(t *testing.T) {
	for _, p := range points(t) {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, f := cancelRig(t), memory.NewFaults()
				gate, reached := make(chan struct{}), make(chan struct{})
				f.Before(p.Op, p.N, func(context.Context, memory.Point) error { close(reached); return nil })
				f.Before("", 0, func(context.Context, memory.Point) error {
					// From then on the whole process stands still, whatever its contexts say.
					select {
					case <-reached:
						<-gate
					default:
					}
					return nil
				})
				done := make(chan struct{})
				go func() { defer close(done); r.work(t.Context(), f) }()
				<-reached
				if err := r.cancel(); err != nil {
					t.Fatal(err)
				}
				r.finish()
				replied := r.outcome()
				closed, _ := r.m.Table.Batch(tenant, batchID)
				parts := fmt.Sprintf("%+v", r.m.Table.PartsOf(tenant, batchID))
				close(gate)
				<-done
				if again := r.outcome(); len(again) != len(replied) {
					t.Errorf("the files changed: %d replies, then %d", len(replied), len(again))
				}
				if now, _ := r.m.Table.Batch(tenant, batchID); now.Ver != closed.Ver {
					t.Errorf("the batch was written: %+v", now)
				}
				if now := fmt.Sprintf("%+v", r.m.Table.PartsOf(tenant, batchID)); now != parts {
					t.Errorf("the parts were written: %s\nafter %s", now, parts)
				}
			})
		})
	}
}

// The id that an unsent line gets is the one that its replay would have given:
// here the same batch runs to its end, and is cancelled before its first line.
func TestUnsentIDsAreThoseOfAReplay(t *testing.T) {
	ids := func(r *rig, kind string) map[string]string {
		found := map[string]string{}
		for raw := range bytes.Lines(r.m.Objects.Bytes(results, batch.ResultKey(tenant, batchID, kind))) {
			var res struct {
				ID       string
				CustomID json.RawMessage `json:"custom_id"`
			}
			if err := json.Unmarshal(raw, &res); err != nil {
				t.Fatal(err)
			}
			found[string(res.CustomID)] = res.ID
		}
		return found
	}
	synctest.Test(t, func(t *testing.T) {
		ran, cancelled := cancelRig(t), cancelRig(t)
		ran.work(t.Context(), nil)
		ran.finish()
		if err := cancelled.cancel(); err != nil {
			t.Fatal(err)
		}
		cancelled.finish()
		want, got := ids(ran, batch.OutputFile), ids(cancelled, batch.ErrorFile)
		if len(want) != 40 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d ids %v\nwant %d: %v", len(got), got, len(want), want)
		}
	})
}
