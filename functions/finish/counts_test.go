package main

import (
	"bytes"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"holdfast/internal/aws/metrics"
	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

// A batch counts once, when it is closed: not when somebody asks again, and not
// when it can't be finished.
func TestCounts(t *testing.T) {
	ev := sample(t)
	var out bytes.Buffer
	counts := metrics.New("finish", &out, nil)
	faults := &memory.Faults{}
	mem := memory.New(memory.Options{})
	mem.Table.SeedBatch(batch.Batch{
		Tenant: ev.Tenant, ID: ev.Batch, Status: batch.InProgress, CreatedAt: time.Now().Add(-90 * time.Second),
	})
	view := mem.With(faults)
	finisher, err := batch.NewFinisher(batch.FinisherPorts{
		Batches: view.Table.Batches, Endings: view.Table.Endings, Parts: view.Table.Parts, Seals: view.Table.Seals,
		Files: view.Table.Files, Objects: view.Objects, Uploads: view.Objects,
	}, "results", &batch.FinisherOptions{Observer: counts.Observer()})
	if err != nil {
		t.Fatal(err)
	}
	h := handler{finisher: finisher, log: slog.New(slog.DiscardHandler), counts: counts}
	faults.Before("Batches.Get", 1, memory.Fail(nil))
	if _, err := h.handle(t.Context(), ev); err == nil || out.Len() != 0 {
		t.Errorf("not finished: %v, %q", err, out.String())
	}
	age := regexp.MustCompile(`"BatchAge":(9|1[0-4])\d[.,]`) // 90 s, and what a busy machine adds
	for range 2 {
		if _, err := h.handle(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	if line := out.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, `"Batches":1,`) || !age.MatchString(line) {
		t.Errorf("%q", line)
	}
}
