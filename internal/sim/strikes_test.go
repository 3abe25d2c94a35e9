package sim_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

// TestStrikes walks claims of one part through every order of ends that they may
// come to, beside a model of what a strike is: a line's strikes, as a claim finds
// them, are the claims in a row that had it alone in flight and died. A claim that
// comes to another end takes its own back, and only that; a checkpoint takes all.
func TestStrikes(t *testing.T) {
	const lines = 6
	key := batch.PartKey{Tenant: "t", Batch: "b"}
	rapid.Check(t, func(t *rapid.T) {
		s := memory.NewTable(nil)
		s.SeedBatch(batch.Batch{Tenant: "t", ID: "b", Status: batch.InProgress})
		s.SeedPart(batch.Part{PartKey: key, State: batch.Pending, Lines: lines, DoneLines: batch.NewBitmap(lines)})
		ctx, now := t.Context(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		suspect, deaths := -1, 0 // the line that is suspected, and how many it was alone at
		done := batch.NewBitmap(lines)
		for turn := range rapid.IntRange(1, 30).Draw(t, "claims") {
			c := batch.Claim{PartKey: key, Token: lease.Token(fmt.Sprint("claim-", turn))}
			until := now.Add(time.Minute)
			p, err := s.Claims.Claim(ctx, c, "", 1000, until, now)
			must(err)
			if p.Suspect.Strikes != deaths || deaths > 0 && p.Suspect.Line != suspect {
				t.Fatalf("claim %d finds %+v, want line %d with %d", turn, p.Suspect, suspect, deaths)
			}
			mine := -1 // the line that this claim has alone in flight
			for ended := false; !ended; {
				switch end := rapid.SampledFrom([]string{"strike", "again", "checkpoint", "hand over", "fail", "die"}).Draw(t, "step"); {
				case end == "strike" && mine < 0 && done.Count() < lines:
					if mine = suspect; deaths == 0 {
						mine = rapid.SampledFrom(undone(done, lines)).Draw(t, "line")
					}
					must(s.Claims.Suspect(ctx, c, batch.Suspect{Line: mine, Strikes: deaths + 1, By: c.Token}, done.Count(), until, now))
				case end == "again" && mine >= 0: // its answer was lost
					must(s.Claims.Suspect(ctx, c, batch.Suspect{Line: mine, Strikes: deaths + 1, By: c.Token}, done.Count(), until, now))
				case end == "checkpoint" && mine >= 0:
					from := done.Count()
					done = done.Clone()
					done.Set(mine)
					must(s.Claims.Checkpoint(ctx, c, batch.Checkpoint{From: from, To: from + 1, Done: done, Chunk: batch.Chunk{Key: string(c.Token), N: 1, OK: 1}}, until, now))
					suspect, deaths, mine = -1, 0, -1
				case end == "hand over":
					must(s.Claims.HandOver(ctx, c, 0, until, now))
					ended = true
				case end == "fail":
					must(s.Claims.Fail(ctx, c, "no", until, now))
					ended = true
				case end == "die":
					if mine >= 0 {
						suspect, deaths = mine, deaths+1
					}
					seen, err := s.Parts.Get(ctx, key)
					must(err)
					now = until.Add(time.Minute)
					_, err = s.Reaps.Reap(ctx, seen, now, now, now)
					must(err)
					ended = true
				}
			}
		}
	})
}

func undone(done batch.Bitmap, lines int) (left []int) {
	for i := range lines {
		if !done.Has(i) {
			left = append(left, i)
		}
	}
	return left
}
