package batch_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// poll runs messages in one warm process, as a poller does, until every part is
// over or the time is up.
func (r *rig) poll(runner *batch.Runner, most time.Duration) {
	r.t.Helper()
	for start := time.Now(); !r.over() && time.Since(start) < most; {
		d, ok := r.receive()
		if !ok {
			r.pass(time.Second)
			continue
		}
		if out := runner.Run(r.t.Context(), d, time.Now().Add(life)); out.Ack {
			must(r.t, r.m.Queue.Delete(r.t.Context(), d))
		}
	}
}

// A storm loses no line, burns no attempt, and hardly asks a model that is down.
// The circuit that opens is told of, and closes with the first answer.
func TestStormLosesNothing(t *testing.T) {
	for name, refuse := range map[string]func(context.Context) (batch.Reply, error){
		"429": refuseWith(429), "503": refuseWith(503), "502": refuseWith(502),
		"not reachable": func(context.Context) (batch.Reply, error) { return batch.Reply{}, batch.ErrUnreachable },
	} {
		for _, c := range []struct{ lines, partLines int }{{3000, 500}, {3, 3}, {2, 2}} {
			for _, storm := range []time.Duration{7 * time.Second, time.Minute, 30 * time.Minute} {
				t.Run(fmt.Sprint(name, " ", c.lines, " lines ", storm), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						s := newServer(1_000_000, second)
						s.refuse = refuse
						r := newRig(t, c.lines, c.partLines, s.answer)
						r.opts = adaptive()
						m := r.observe()
						if c.lines < 100 {
							s.set(0)
						}
						time.AfterFunc(10*time.Second, func() { s.set(0) })
						time.AfterFunc(10*time.Second+storm, func() { s.set(1_000_000) })
						var late int
						time.AfterFunc(25*time.Second, func() { late = s.refused() })
						start := time.Now()
						r.poll(r.runner(nil), 4*time.Hour)
						for i, x := range r.conserved() {
							if !x.OK {
								t.Errorf("line %d failed: %s", i, x.Result)
							}
						}
						for _, p := range r.m.Table.PartsOf(tenant, batchID) {
							if p.Attempts != 0 || p.LastError != "" || p.Lapses != 0 {
								t.Errorf("part %+v", p)
							}
						}
						if took := time.Since(start); took > 10*time.Second+storm+6*time.Minute+2*time.Minute {
							t.Errorf("took %s with a storm of %s", took, storm)
						}
						if late = s.refused() - late; late > 40 {
							t.Errorf("%d requests in the storm after its first 15 s", late)
						}
						opened := r.events(batch.EventCircuitOpen)
						if len(opened) != int(m.of(batch.MetricCircuitOpen)) || storm >= time.Minute && len(opened) != 1 {
							t.Fatalf("%v opened, events %+v", m.of(batch.MetricCircuitOpen), opened)
						}
						for _, e := range opened {
							if !strings.Contains(e.Reason, `model "m"`) || !strings.Contains(e.Reason, name) {
								t.Errorf("reason %q", e.Reason)
							}
						}
						if storm > 10*time.Minute && len(r.events(batch.EventHandedOver)) == 0 {
							t.Error("nothing was handed over")
						}
						t.Logf("%d claims, %d requests refused, %s", int(m.of(batch.MetricClaims)), s.refused(), time.Since(start))
					})
				})
			}
		}
	}
}

// A model whose every answer is a 500 is asked for one new line at a time, and each
// line ends after its tries: they may be to blame themselves.
func TestErrorsThatMayBeTheLines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 300, 300, func(ctx context.Context, _ batch.Call) (batch.Reply, error) {
			return reply(500, `{}`), memory.Wait(ctx, 100*time.Millisecond)
		})
		r.opts = adaptive()
		m := r.observe()
		r.poll(r.runner(nil), time.Hour)
		for i, x := range r.conserved() {
			if x.OK || x.receipt.Status != 500 || x.receipt.Attempt != 5 {
				t.Errorf("line %d: %s after %d tries", i, x.Result, x.receipt.Attempt)
			}
		}
		if m.of(batch.MetricCircuitOpen) != 1 || len(r.events(batch.EventCircuitOpen)) != 1 {
			t.Errorf("opened %v times", m.of(batch.MetricCircuitOpen))
		}
	})
}

// A line that is refused while others are answered ends after its tries.
func TestRefusedAmongAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 2000, 500, func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			if c.Line%100 == 7 {
				return reply(429, `{}`), memory.Wait(ctx, 100*time.Millisecond)
			}
			return after(time.Second)(ctx, c)
		})
		r.opts = adaptive()
		m := r.observe()
		r.poll(r.runner(nil), time.Hour)
		for i, x := range r.conserved() {
			if refused := i%100 == 7; x.OK == refused || refused && (x.receipt.Status != 429 || x.receipt.Attempt != 5) {
				t.Errorf("line %d: %s after %d tries", i, x.Result, x.receipt.Attempt)
			}
		}
		if m.of(batch.MetricCircuitOpen) != 0 {
			t.Errorf("opened %v times", m.of(batch.MetricCircuitOpen))
		}
	})
}

// One model is down for hours. Parts with its lines are handed over again and again,
// at a bounded cost; other models' lines, in the same parts too, come to their ends;
// and when the batch's time is up it is left alone like any other.
func TestModelThatIsDownForHours(t *testing.T) {
	bubble(t, func(t *testing.T) {
		down := newServer(0, second)
		r := newModelRig(t, 400, 100, 0, func(i int) string { return []string{"good", "bad"}[i/2%2] },
			func(ctx context.Context, c batch.Call) (batch.Reply, error) {
				if c.Line/2%2 == 1 {
					return down.answer(ctx, c)
				}
				return after(time.Second)(ctx, c)
			})
		r.opts = adaptive()
		m := r.observe()
		f := memory.NewFaults()
		runner := r.runner(f)
		r.poll(runner, 20*time.Minute)
		claims, asked := m.of(batch.MetricClaims), down.refused()
		done := 0
		for _, p := range r.m.Table.PartsOf(tenant, batchID) {
			done += p.Processed
			if p.State != batch.Pending || p.Attempts != 0 {
				t.Errorf("part %+v", p)
			}
		}
		if done != 200 {
			t.Errorf("%d lines of the good model are done, want all 200", done)
		}
		r.poll(runner, 6*time.Hour)
		perHour := (m.of(batch.MetricClaims) - claims) / 6 / 4
		t.Logf("%.1f claims a part and hour, %.1f requests an hour", perHour, float64(down.refused()-asked)/6)
		if perHour > 15 || down.refused()-asked > 6*40 {
			t.Errorf("%.1f claims a part and hour, %d requests in six hours", perHour, down.refused()-asked)
		}
		r.setBatch(func(b *batch.Batch) { b.Ending = batch.Expired })
		r.poll(runner, time.Hour)
		if left := r.m.Queue.Messages(); len(left) != 0 {
			t.Errorf("messages of an expired batch: %+v", left)
		}
	})
}

// A model that answers now and then opens its circuit a hundred times an hour, in
// each worker. The metric counts that; the batch is told every ten minutes, of each
// model, whoever finds out.
func TestFlappingCircuitIsToldSeldom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		if err := memory.Wait(t.Context(), 3*time.Minute); err != nil { // not where ten minutes begin
			t.Fatal(err)
		}
		began := time.Now()
		last := began
		r := newRig(t, 4000, 500, func(ctx context.Context, _ batch.Call) (batch.Reply, error) {
			mu.Lock()
			answers := time.Since(last) > 6*time.Second
			if answers {
				last = time.Now()
			}
			mu.Unlock()
			if answers {
				return after(200*time.Millisecond)(ctx, batch.Call{})
			}
			return reply(503, `{}`), memory.Wait(ctx, 200*time.Millisecond)
		})
		r.opts = adaptive()
		m := r.observe()
		done := make(chan struct{})
		for range 2 {
			go func() {
				r.poll(r.runner(nil), time.Hour)
				done <- struct{}{}
			}()
		}
		<-done
		<-done
		events, opened := r.events(batch.EventCircuitOpen), m.of(batch.MetricCircuitOpen)
		if len(events) < 6 || len(events) > 9 || // an hour, and what the last run takes
			opened < 100 {
			t.Errorf("%d events of %v", len(events), opened)
		}
		for i, e := range events {
			if e.Seen.Before(e.At) || e.Seen.Sub(e.At) >= 10*time.Minute || e.Seen.Before(began) {
				t.Errorf("event of %v, seen %v, of a batch that began %v", e.At, e.Seen, began)
			}
			if e.Part != batch.NoPart || e.At.Minute()%10 != 0 || i > 0 && e.ID() == events[i-1].ID() || !strings.Contains(e.Reason, `model "m"`) {
				t.Errorf("event %+v", e)
			}
		}
	})
}
