package bridge_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/batches"
	"holdfast/internal/memory"
)

// whole is a bridge to Holdfast's own batches, with everything in process.
type whole struct {
	*testing.T
	mem *memory.Memory
	log bytes.Buffer
}

func newWhole(t *testing.T) *whole {
	w := &whole{T: t, mem: memory.New(memory.Options{})}
	f := batch.File{Tenant: "acme", ID: "file-1", Purpose: "batch", CreatedAt: start, ExpiresAt: start.Add(30 * 24 * time.Hour)}
	if err := w.mem.Table.Files.Put(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	return w
}

// process is one with these faults.
func (w *whole) process(f *memory.Faults) *bridge.Bridge {
	w.Helper()
	view := w.mem.With(f)
	creator, err := batch.NewCreator(view.Table.Batches, view.Table.Files, view.Workflow, &batch.CreatorOptions{Endpoints: []string{"/v1/embeddings"}})
	if err != nil {
		w.Fatal(err)
	}
	b, err := bridge.New(view.Table.Bridge, batches.New(creator, view.Table.Batches, view.Table.Files, 30*24*time.Hour), &bridge.Options{Log: slog.New(slog.NewJSONHandler(&w.log, nil))})
	if err != nil {
		w.Fatal(err)
	}
	return b
}

// one demands one batch, one execution, and a row that says so.
func (w *whole) one() bridge.Row {
	w.Helper()
	page, _, err := w.mem.Table.Batches.List(w.Context(), "acme", "", 10)
	if err != nil || len(page) != 1 || page[0].ID != idOfK {
		w.Errorf("batches %+v, %v", page, err)
	}
	if e := w.mem.Workflow.Executions(); len(e) != 1 || e[0].Name != idOfK {
		w.Errorf("executions %+v", e)
	}
	row, _ := w.mem.Table.Row("acme", "k")
	if row.State != bridge.Confirmed || row.Job != idOfK {
		w.Errorf("row %+v", row)
	}
	return row
}

// The owner stalls at a call, before it takes effect or after: in the claim, anywhere in
// the submit, at the confirm. It sleeps for an hour, is robbed by another delivery or by
// the reaper, and wakes. One batch, one execution, and of the thief's row nothing is
// changed; the owner is answered with the same batch.
func TestOwnerThatWasRobbedWakes(t *testing.T) {
	clean := memory.NewFaults()
	w := newWhole(t)
	if _, err := w.process(clean).Submit(t.Context(), request("k"), start); err != nil {
		t.Fatal(err)
	}
	w.one()
	late := start.Add(time.Hour)
	thieves := map[string]func(context.Context, *bridge.Bridge) (string, error){
		"a delivery": func(ctx context.Context, b *bridge.Bridge) (string, error) { return b.Submit(ctx, request("k"), late) },
		"the reaper": func(ctx context.Context, b *bridge.Bridge) (string, error) {
			return b.Resume(ctx, "acme", nameOfK, late, nil)
		},
	}
	stalls := map[string]func(*memory.Faults, string, int, memory.Hook){"before": (*memory.Faults).Before, "after": (*memory.Faults).After}
	robbed := 0
	for _, p := range clean.Calls() {
		for when, stall := range stalls {
			for who, rob := range thieves {
				t.Run(when+" "+p.String()+", robbed by "+who, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w, f, gate := newWhole(t), memory.NewFaults(), memory.NewGate()
						stall(f, p.Op, p.N, gate.Wait)
						owner := make(chan error)
						var job string
						go func() {
							var err error
							job, err = w.process(f).Submit(t.Context(), request("k"), start)
							owner <- err
						}()
						<-gate.Reached()
						slept, claimed := w.mem.Table.Row("acme", "k")
						thief, err := rob(t.Context(), w.process(nil))
						if err != nil {
							t.Fatal(err)
						}
						before, _ := w.mem.Table.Row("acme", "k")
						gate.Open()
						if err := <-owner; err != nil || job != idOfK {
							t.Errorf("the owner: %q, %v", job, err)
						}
						after := w.one()
						if thief == "" || !claimed || slept.State == bridge.Confirmed {
							return // there was nobody to rob
						}
						robbed++
						if before.Token == slept.Token || after.Token != before.Token || after.Ver != before.Ver {
							t.Errorf("row %+v\nwas  %+v\nand when the owner slept %+v", after, before, slept)
						}
						if strings.Contains(w.log.String(), "WARN") {
							t.Errorf("being robbed is a warning: %s", &w.log)
						}
					})
				})
			}
		}
	}
	// Every stall but those before the claim and after the confirm.
	if want := 2 * (2*len(clean.Calls()) - 2); robbed != want {
		t.Errorf("robbed %d times, want %d", robbed, want)
	}
}

// The owner wakes while its thief is still submitting: its confirm doesn't count, and
// the row stays the thief's, who confirms it.
func TestOwnerWakesBeforeItsThiefIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWhole(t)
		sleeping, working := memory.NewGate(), memory.NewGate()
		owner, thief := memory.NewFaults(), memory.NewFaults()
		owner.Before("Bridge.Confirm", 1, sleeping.Wait)
		thief.Before("Workflow.Start", 1, working.Wait)
		owned, stole := make(chan error), make(chan error)
		go func() {
			_, err := w.process(owner).Submit(t.Context(), request("k"), start)
			owned <- err
		}()
		<-sleeping.Reached()
		go func() {
			_, err := w.process(thief).Resume(t.Context(), "acme", nameOfK, start.Add(time.Hour), nil)
			stole <- err
		}()
		<-working.Reached()
		before, _ := w.mem.Table.Row("acme", "k")
		sleeping.Open()
		if err := <-owned; err != nil {
			t.Error(err)
		}
		if after, _ := w.mem.Table.Row("acme", "k"); after.State != bridge.Reserved || after.Token != before.Token || after.Ver != before.Ver {
			t.Errorf("the owner that was robbed confirmed its thief's row: %+v", after)
		}
		working.Open()
		if err := <-stole; err != nil {
			t.Error(err)
		}
		if row := w.one(); row.Token != before.Token {
			t.Errorf("%+v", row)
		}
	})
}
