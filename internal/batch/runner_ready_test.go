package batch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// slowly is a model whose secret and connection take so long for the calls that slow
// says, and that asks only then whether the line may still go.
func slowly(r *rig, slow func(batch.Call) time.Duration, went func(batch.Call)) {
	r.ports = func(p *batch.RunnerPorts) {
		p.Model = modelFunc(func(ctx context.Context, c batch.Call) (batch.Reply, error) {
			if err := memory.Wait(ctx, slow(c)); err != nil {
				return batch.Reply{}, err
			}
			if err := c.Ready(ctx); err != nil {
				return batch.Reply{}, err
			}
			went(c)
			return reply(200, `{}`), nil
		})
	}
}

// Reading the secret takes 9 s, in which the batch is cancelled: nothing is sent on the
// view that the line was begun on.
func TestLineThatIsHeldUpMeetsACancel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 3, 3, nil)
		slowly(r, func(batch.Call) time.Duration { return 9 * time.Second }, func(c batch.Call) { t.Errorf("line %d was sent", c.Line) })
		time.AfterFunc(time.Second, func() {
			if _, err := r.m.Table.Endings.End(context.Background(), tenant, batchID, batch.Cancelled, time.Now()); err != nil {
				t.Error(err)
			}
		})
		r.run(nil, life)
		if n := len(r.records()); n != 0 {
			t.Errorf("%d records", n)
		}
	})
}

// The batch can't be looked at while the line waits for its connection: it is not sent on
// the old view. Once it can be, the line goes, and nothing of that cost it a try.
func TestLineThatIsHeldUpBehindAnOldView(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1, 1, nil)
		f, began := memory.NewFaults(), time.Now()
		var mu sync.Mutex
		var asked int
		var sent []time.Duration
		slowly(r, func(batch.Call) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return map[bool]time.Duration{true: 12 * time.Second}[asked == 1]
		}, func(batch.Call) { sent = append(sent, time.Since(began)) })
		f.Before("Batches.Get", 0, func(context.Context, memory.Point) error {
			if at := time.Since(began); at > time.Second && at < 20*time.Second {
				return errors.New("throttled")
			}
			return nil
		})
		expect(t, r.run(f, life), true, "done")
		if len(sent) != 1 || sent[0] < 20*time.Second || asked != 2 {
			t.Errorf("sent after %v, asked %d times", sent, asked)
		}
		if x := r.records()[0]; !x.OK || x.receipt.Attempt != 1 {
			t.Errorf("%s, receipt %s", x.Result, x.Receipt)
		}
	})
}

// A claim that is over sends nothing more, whatever its view says.
func TestLineThatIsHeldUpBehindALostClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, 1, 1, nil)
		r.opts.Lease, r.opts.Heartbeat = 20*time.Second, 5*time.Second
		f := memory.NewFaults()
		f.Before("Claims.Heartbeat", 0, memory.Fail(nil))
		// A model that doesn't notice that its context is over.
		r.ports = func(p *batch.RunnerPorts) {
			p.Model = modelFunc(func(ctx context.Context, c batch.Call) (batch.Reply, error) {
				if err := memory.Wait(context.WithoutCancel(ctx), 21*time.Second); err != nil {
					t.Error(err)
				}
				if c.Ready(context.WithoutCancel(ctx)) == nil {
					t.Error("the line may go after the lease")
				}
				return reply(200, `{}`), nil
			})
		}
		expect(t, r.run(f, life), false, "lost")
	})
}

// A wrong secret is nobody's line's fault: the lines wait for the operator as they do for
// a model that is down, and none is lost.
func TestWrongSecretLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		began := time.Now()
		r := newRig(t, 600, 300, func(ctx context.Context, _ batch.Call) (batch.Reply, error) {
			if err := memory.Wait(ctx, 100*time.Millisecond); err != nil || time.Since(began) > 20*time.Minute {
				return reply(200, `{}`), err
			}
			return reply(401, `{"error":{"message":"no such key: sk-1"}}`), nil
		})
		r.opts = adaptive()
		m := r.observe()
		r.poll(r.runner(nil), 4*time.Hour)
		for i, x := range r.conserved() {
			if !x.OK {
				t.Errorf("line %d: %s", i, x.Result)
			}
		}
		if m.of(batch.MetricCircuitOpen) == 0 || len(r.events(batch.EventCircuitOpen)) == 0 {
			t.Error("nobody was told")
		}
	})
}
