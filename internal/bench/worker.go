package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
	"holdfast/internal/outbound"
	"holdfast/internal/upstream"
)

// WorkerPeak runs so many lines, in parts of 500, through one Runner of k slots and
// the client that the work function has, against the model server at url, and
// returns the most memory that this process was ever given, in bytes. So it wants a
// process of its own. Lines are made as they are read and chunks thrown away as
// they are written: what is measured is the worker, not its stores.
func WorkerPeak(url string, k, lines int) (peak int64, err error) {
	m := memory.New(memory.Options{})
	objects := discard{m.Objects}
	model, err := upstream.New(url, &upstream.Options{Connections: k, Guard: outbound.Guard{Allow: outbound.Loopback}})
	if err != nil {
		return 0, err
	}
	runner, err := batch.NewRunner(batch.RunnerPorts{
		Batches: m.Table.Batches, Parts: m.Table.Parts, Claims: m.Table.Claims, Steals: m.Table.Claims, Deaths: m.Table.Deaths, Events: m.Table.Events,
		Objects: objects, Queue: m.Queue, Workflow: m.Workflow,
		Model: model, Log: slog.New(slog.DiscardHandler), Results: "results",
	}, &batch.RunnerOptions{Concurrency: k, Floor: k, Ceiling: k})
	if err != nil {
		return 0, err
	}
	const partLines = 500
	m.Table.SeedBatch(batch.Batch{
		Tenant: tenant, ID: id, Status: batch.InProgress, Submitter: "bench", Endpoint: "/v1/chat/completions",
		Input: batch.Input{Object: batch.Object{Bucket: "inputs", Key: "input"}}, Parts: (lines + partLines - 1) / partLines, Lines: int64(lines),
	})
	for from := 0; from < lines; from += partLines {
		p := batch.Part{
			PartKey: batch.PartKey{Tenant: tenant, Batch: id, N: from / partLines}, State: batch.Pending,
			FirstLine: int64(from), FirstPhysical: int64(from + 1), Lines: min(partLines, lines-from), From: int64(from * lineBytes),
		}
		p.To = p.From + int64(p.Lines*lineBytes)
		m.Table.SeedPart(p)
		if err := m.Queue.Send(context.Background(), batch.Message{V: 1, Tenant: tenant, Batch: id, Part: p.N, TaskToken: "t"}, 0); err != nil {
			return 0, err
		}
	}
	w := &work{queue: m.Queue}
	done, err := w.poll(runner)
	if err == nil && done != lines {
		err = fmt.Errorf("%d of %d lines done", done, lines)
	}
	if err != nil {
		return 0, err
	}
	return peakRSS()
}

// discard is a store whose input is made up and which keeps nothing. What it is
// given it takes as long for as a store on the network would.
type discard struct{ batch.Objects }

func (discard) Put(ctx context.Context, o batch.Object, data []byte) (batch.Object, error) {
	o.Bytes = int64(len(data))
	return o, memory.Wait(ctx, 15*time.Millisecond+time.Duration(len(data))*10) // 100 MB/s
}

func (discard) Open(_ context.Context, _ batch.Object, from, to int64) (io.ReadCloser, error) {
	return io.NopCloser(&requests{at: from, to: to}), nil
}

// lineBytes is the length of every line that requests gives.
var lineBytes = len(oneRequest(0))

func oneRequest(i int64) []byte { return fmt.Appendf(nil, wideRequest, i, i) }

const wideRequest = `{"custom_id":"request-%08d","method":"POST","url":"/v1/chat/completions","body":{"model":"sim","messages":[{"role":"system","content":"You are a helpful assistant."},{"role":"user","content":"Say something about line %08d."}],"max_tokens":100}}` + "\n"

// requests reads a stretch of an endless input.
type requests struct {
	at, to int64
	rest   bytes.Reader
}

func (r *requests) Read(p []byte) (int, error) {
	if r.at >= r.to {
		return 0, io.EOF
	}
	n := int64(lineBytes)
	r.rest.Reset(oneRequest(r.at / n)[r.at%n:])
	got, err := r.rest.Read(p[:min(int64(len(p)), r.to-r.at)])
	r.at += int64(got)
	return got, err
}
