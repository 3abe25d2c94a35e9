package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/door"
	"holdfast/internal/memory"
	"holdfast/internal/openai"
)

// DrainPorts are where a Drain starts its batches.
type DrainPorts struct {
	Batches  batch.Batches
	Files    batch.Files
	Store    bridge.Store
	Workflow batch.Workflow
}

// Drain starts batches of one file as the doors do, or without them: by what is
// submitted alone. Each of its calls begins where the one before ended.
type Drain struct {
	submitter *batches.Submitter
	bridge    *bridge.Bridge
	drainer   *bridge.Drainer
	tenant    string
	file      batch.File
	n         int
}

// side is how many are under way at once: the messages of one invocation.
const side = 10

// NewDrain records the file, of a tenant that nobody else uses.
func NewDrain(ctx context.Context, p DrainPorts, tenant string, now time.Time) (*Drain, error) {
	d := &Drain{tenant: tenant, file: batch.File{
		Tenant: tenant, ID: "file-drain", Purpose: openai.PurposeBatch, Filename: "drain.jsonl", CreatedAt: now,
		Object: batch.Object{Bucket: "inputs", Key: "files/" + tenant + "/drain", Version: "1", ETag: `"e"`, Bytes: 100},
	}}
	creator, err := batch.NewCreator(p.Batches, p.Files, p.Workflow, nil)
	if err != nil {
		return nil, err
	}
	d.submitter = batches.New(creator, p.Batches, p.Files, 24*time.Hour)
	if d.bridge, err = bridge.New(p.Store, d.submitter, &bridge.Options{Wait: -1}); err != nil {
		return nil, err
	}
	letters := memory.NewLetters(nil) // a message that is done with costs the queue nothing more
	d.drainer = bridge.NewDrainer(d.bridge, door.NewMessages(nil, nil, letters, door.Site{
		Inputs: "inputs", Results: "results", FileBytes: 1 << 20,
		Allow: openai.Allow{Endpoints: []string{"/v1/chat/completions"}, Windows: []string{"24h"}},
	}, nil), letters, nil)
	return d, p.Files.Put(ctx, d.file)
}

func (d *Drain) request(n int) bridge.Request {
	return bridge.Request{
		Tenant: d.tenant, CorrelationID: fmt.Sprint("request ", n), RequestID: "bench", Submitter: "bench@example.com",
		FileID: d.file.ID, Endpoint: "/v1/chat/completions", Window: "24h",
	}
}

// Bare submits n requests without claims.
func (d *Drain) Bare(ctx context.Context, n int) (time.Duration, error) {
	return d.each(ctx, n, 1, func(ctx context.Context, from int) error {
		r := d.request(from)
		_, err := d.submitter.Submit(ctx, bridge.BatchID(r.Tenant, r.CorrelationID), r, time.Now())
		return err
	})
}

// Messages drains n messages, ten at a time.
func (d *Drain) Messages(ctx context.Context, n int) (time.Duration, error) {
	return d.each(ctx, n, side, func(ctx context.Context, from int) error {
		letters := make([]bridge.Letter, side)
		for i := range letters {
			r := d.request(from + i)
			letters[i] = bridge.Letter{ID: r.CorrelationID, Receipt: "r", Receives: 1, Body: fmt.Appendf(nil,
				`{"v":1,"correlation_id":%q,"tenant":%q,"principal":%q,"input":{"file_id":%q},"endpoint":%q,"completion_window":%q}`,
				r.CorrelationID, r.Tenant, r.Submitter, r.FileID, r.Endpoint, r.Window)}
		}
		failed, sum := d.drainer.Drain(ctx, letters, time.Now())
		if len(failed) > 0 || sum.Started != len(letters) {
			return fmt.Errorf("%d of %d messages failed: %+v", len(failed), len(letters), sum)
		}
		return nil
	})
}

// Claim submits one request, which Duplicates has delivered again.
func (d *Drain) Claim(ctx context.Context) error {
	_, err := d.bridge.Submit(ctx, d.request(-1), time.Now())
	return err
}

// Duplicates delivers the claimed request n times more.
func (d *Drain) Duplicates(ctx context.Context, n int) (time.Duration, error) {
	return d.each(ctx, n, 1, func(ctx context.Context, _ int) error {
		_, err := d.bridge.Submit(ctx, d.request(-1), time.Now())
		return err
	})
}

// each does n in steps, so that ten are under way at once, and takes the time.
func (d *Drain) each(ctx context.Context, n, step int, do func(ctx context.Context, from int) error) (time.Duration, error) {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(side / step)
	for i := 0; i < n; i += step {
		group.Go(func() error { return do(ctx, d.n+i) })
	}
	err := group.Wait()
	d.n += n
	return time.Since(began), err
}

// DrainCalls is how many calls of the table each takes.
type DrainCalls struct{ Bare, Message, Duplicate float64 }

// CountDrain counts n of each on in-process ports, of which every call counts.
func CountDrain(ctx context.Context, n int) (c DrainCalls, err error) {
	f := memory.NewFaults()
	m := memory.New(memory.Options{Faults: f})
	d, err := NewDrain(ctx, DrainPorts{m.Table.Batches, m.Table.Files, m.Table.Bridge, m.Workflow}, "bench", time.Now())
	if err != nil {
		return c, err
	}
	seen := 0
	calls := func() float64 {
		before := seen
		seen = 0
		for _, p := range f.Calls() {
			if !strings.HasPrefix(p.Op, "Workflow.") {
				seen++
			}
		}
		return float64(seen-before) / float64(n)
	}
	calls()
	if _, err = d.Bare(ctx, n); err != nil {
		return c, err
	}
	c.Bare = calls()
	if _, err = d.Messages(ctx, n); err != nil {
		return c, err
	}
	c.Message = calls()
	if err = d.Claim(ctx); err != nil {
		return c, err
	}
	calls()
	_, err = d.Duplicates(ctx, n)
	c.Duplicate = calls()
	return c, err
}
