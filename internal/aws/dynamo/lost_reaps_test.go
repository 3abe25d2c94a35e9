package dynamo

import (
	"errors"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
)

// TestLostAnswersOfReaping is TestLostAnswers for those who deal with what a
// worker left behind: a part is claimed, stolen, reaped, dies and is redriven
// while every answer is lost once.
func TestLostAnswersOfReaping(t *testing.T) {
	client, name := newTable(t)
	s, ctx := New(twice{client}, name), t.Context()
	b, p := aBatch("acme"), aPart("acme", 0)
	ok(t, New(client, name).Batches.Create(ctx, b))
	must(s.Batches.Start(ctx, b.Tenant, b.ID, batch.Started{Parts: 1, Lines: 2}, start))(t)
	ok(t, s.Parts.Insert(ctx, []batch.Part{p}))
	now := func() batch.Part { return must(s.Parts.Get(ctx, p.PartKey))(t) }
	c, thief := batch.Claim{PartKey: p.PartKey, Token: lease.NewToken()}, batch.Claim{PartKey: p.PartKey, Token: lease.NewToken()}
	after := func(d time.Duration) time.Time { return start.Add(d) }
	for _, step := range []struct {
		name string
		do   func() error
		want error
		is   func(batch.Part) bool
	}{
		{"Claim", func() error { return errOf(s.Claims.Claim(ctx, c, "", 3, after(time.Minute), start)) }, nil,
			func(p batch.Part) bool { return p.Attempts == 1 }},
		{"Suspect", func() error {
			return s.Claims.Suspect(ctx, c, batch.Suspect{Line: 1, Strikes: 1, By: c.Token}, 0, after(time.Minute), start)
		}, nil, func(p batch.Part) bool { return p.Suspect == batch.Suspect{Line: 1, Strikes: 1, By: c.Token} }},
		{"Steal", func() error {
			return errOf(s.Claims.Steal(ctx, thief, "", now().Ver, 1, after(time.Hour), after(2*time.Hour), after(time.Hour)))
		}, nil, func(p batch.Part) bool {
			return p.Attempts == 2 && p.Lapses == 1 && p.Steals == 1 && p.Owner == thief.Token
		}},
		{"Suspect", func() error {
			return s.Claims.Suspect(ctx, thief, batch.Suspect{Line: 1, Strikes: 2, By: thief.Token}, 0, after(2*time.Hour), start)
		}, nil, func(p batch.Part) bool { return p.Suspect.Strikes == 2 }},
		// It is given back; that it was can't be told from a loss.
		{"HandOver", func() error { return s.Claims.HandOver(ctx, thief, 1, after(4*time.Hour), start) }, lease.ErrLost,
			func(p batch.Part) bool { return p.Suspect == batch.Suspect{Line: 1, Strikes: 1} && p.Attempts == 1 }},
		{"Postpone", func() error { return errOf(s.Reaps.Postpone(ctx, now(), after(5*time.Hour), start)) }, nil,
			func(p batch.Part) bool { return p.Resends == 1 }},
		{"Claim", func() error { return errOf(s.Claims.Claim(ctx, c, "", 1, after(time.Minute), start)) }, nil,
			func(p batch.Part) bool { return p.Resends == 0 }},
		{"Checkpoint", func() error {
			return s.Claims.Checkpoint(ctx, c, batch.Checkpoint{To: 1, Done: batch.Bitmap{1}, Chunk: batch.Chunk{N: 1}}, after(time.Minute), start)
		}, nil, func(p batch.Part) bool { return p.Suspect.None() }},
		{"Reap", func() error { return errOf(s.Reaps.Reap(ctx, now(), after(time.Hour), after(3*time.Hour), start)) }, nil,
			func(p batch.Part) bool { return p.State == batch.Pending && p.Lapses == 2 }},
		{"Declare", func() error {
			return errOf(s.Deaths.Declare(ctx, now(), 0, after(time.Hour), after(3*time.Hour), after(time.Hour)))
		}, nil, func(p batch.Part) bool { return p.State == batch.Dead && p.DeadAt.Equal(after(time.Hour)) }},
		{"Redrive", func() error { return errOf(s.Deaths.Redrive(ctx, now(), after(3*time.Hour), start)) }, nil,
			func(p batch.Part) bool { return p.State == batch.Pending && p.Attempts == 0 && p.DeadAt.IsZero() }},
		{"Defer", func() error { return s.Reaps.Defer(ctx, b.Tenant, b.ID, after(time.Hour), start) }, nil,
			func(batch.Part) bool {
				return dueAt(t, raw{client, name}, metaKey(b.Tenant, b.ID)).Equal(after(time.Hour))
			}},
		{"Record", func() error {
			return s.Events.Record(ctx, batch.Event{Tenant: b.Tenant, Batch: b.ID, At: start, Kind: batch.EventDead})
		}, nil, func(batch.Part) bool {
			page, _, err := s.Events.List(ctx, b.Tenant, b.ID, "", 10)
			return err == nil && len(page) == 1
		}},
	} {
		ver := now().Ver
		if err := step.do(); !errors.Is(err, step.want) {
			t.Fatalf("%s: %v, want %v", step.name, err, step.want)
		}
		if p := now(); !step.is(p) || p.Ver > ver+2 || p.Ver > ver+1 && step.name != "Suspect" {
			t.Fatalf("after %s at version %d: %+v", step.name, ver, p)
		}
	}
}
