package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/memory"
)

func TestDeadParts(t *testing.T) {
	now := time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)
	m := memory.NewTable(nil)
	for _, tenant := range []string{"acme", "globex"} {
		for n := range 40 {
			p := batch.Part{PartKey: batch.PartKey{Tenant: tenant, Batch: "batch_1", N: n}, State: batch.Pending, Due: now}
			if n%2 == 1 {
				p.State = batch.Dead
			}
			m.SeedPart(p)
		}
	}
	list := func(tenant string, f *memory.Faults) (found []string, err error) {
		s := m.With(f)
		for p, err := range batch.DeadParts(t.Context(), s.Reaps, s.Parts, tenant) {
			if err != nil {
				return found, err
			}
			if p.State != batch.Dead {
				t.Errorf("a %s part is listed", p.State)
			}
			found = append(found, fmt.Sprint(p.Tenant, p.N))
		}
		slices.Sort(found)
		return found, nil
	}
	for tenant, want := range map[string]int{"acme": 20, "globex": 20, "": 40, "nobody": 0} {
		if got, err := list(tenant, nil); err != nil || len(got) != want || len(slices.Compact(got)) != want {
			t.Errorf("dead parts of %q: %v, %v; want %d", tenant, got, err, want)
		}
	}
	// All of them are redriven after two were read.
	f := memory.NewFaults()
	f.Before("Parts.Get", 3, func(context.Context, memory.Point) error {
		key := batch.PartKey{Tenant: "acme", Batch: "batch_1"}
		for n := range 40 {
			key.N = n
			p, _ := m.Part(key)
			p.State = batch.Pending
			m.SeedPart(p)
		}
		return nil
	})
	if got, err := list("acme", f); err != nil || len(got) != 2 {
		t.Errorf("after that: %v, %v", got, err)
	}
	for _, op := range []string{"Reaps.Due", "Parts.Get"} {
		f := memory.NewFaults()
		f.Before(op, 2, memory.Fail(nil))
		if _, err := list("globex", f); !errors.Is(err, memory.ErrInjected) {
			t.Errorf("%s fails: %v", op, err)
		}
	}
	for range batch.DeadParts(t.Context(), m.Reaps, m.Parts, "globex") {
		break // a caller may stop
	}
}

func TestStrikesTakenBack(t *testing.T) {
	s := batch.Suspect{Line: 7, Strikes: 2, By: "tok"}
	if got, want := s.TakenBack(), (batch.Suspect{Line: 7, Strikes: 1}); got != want || got.None() {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := s.TakenBack().TakenBack(); got != (batch.Suspect{}) || !got.None() {
		t.Errorf("%+v after both strikes were taken back", got)
	}
	if got := (batch.Suspect{}).TakenBack(); !got.None() {
		t.Errorf("%+v of no suspect", got)
	}
}
