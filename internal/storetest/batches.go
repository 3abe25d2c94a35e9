package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
)

// BatchesPorts are what the suite of batch.Batches needs: Endings takes a batch
// on to statuses that Batches doesn't reach.
type BatchesPorts struct {
	Batches batch.Batches
	Endings batch.Endings
}

// RunBatches runs the suite of batch.Batches.
func RunBatches(t *testing.T, open func(T) BatchesPorts) {
	t.Helper()
	run(t, BatchesCases(), open)
}

// BatchesCases is the suite of batch.Batches.
func BatchesCases() []Case[BatchesPorts] {
	return append(append([]Case[BatchesPorts]{
		{"create/a full batch comes back whole", createFull},
		{"create/a bare batch comes back bare", createBare},
		{"create/large metadata comes back", createLarge},
		{"create/a taken id is refused, but for its own lost write", createTaken},
		{"create/one of many wins", createRace},
		{"create/what was given or got is not shared", createShared},
		{"get/unknown", getUnknown},
		{"get/another tenant's batch is not found", getForeign},
		{"a context that is over", batchesInterrupted},
	}, startCases...), listCases...)
}

// begin creates b and gives it as stored.
func begin(t T, s batch.Batches, b batch.Batch) batch.Batch {
	t.Helper()
	succeeds(t, "create", s.Create(t.Context(), b))
	return look(t, s, b)
}

func look(t T, s batch.Batches, b batch.Batch) batch.Batch {
	t.Helper()
	return value(s.Get(t.Context(), b.Tenant, b.ID))(t, "get")
}

func createFull(t T, p BatchesPorts) {
	b := fullBatch()
	same(t, "created", begin(t, p.Batches, b), b, "Ver")
}

func createBare(t T, p BatchesPorts) {
	b := bareBatch()
	same(t, "created", begin(t, p.Batches, b), b, "Ver")
}

func createLarge(t T, p BatchesPorts) {
	b := fullBatch()
	b.Metadata = map[string]string{}
	for i := range 16 {
		b.Metadata[strings.Repeat("é", 60)+fmt.Sprint(i)] = strings.Repeat("日", 512)
	}
	same(t, "created", begin(t, p.Batches, b), b, "Ver")
}

func createTaken(t T, p BatchesPorts) {
	b := fullBatch()
	first := begin(t, p.Batches, b)
	other := b
	other.Submitter, other.Metadata = "somebody-else", nil
	succeeds(t, "the same again", p.Batches.Create(t.Context(), b))
	refuses(t, "another of the id", p.Batches.Create(t.Context(), other), batch.ErrExists)
	same(t, "after the refusals", look(t, p.Batches, b), first)
	failed := value(p.Batches.Refuse(t.Context(), b.Tenant, b.ID, nil, at(0)))(t, "refuse")
	refuses(t, "over a failed one", p.Batches.Create(t.Context(), b), batch.ErrExists)
	same(t, "after the last refusal", look(t, p.Batches, b), failed)
}

func createRace(t T, p BatchesPorts) {
	b := fullBatch()
	errs := race(racers, func(i int) error {
		mine := b
		mine.RequestID = fmt.Sprint("req_", i)
		return p.Batches.Create(t.Context(), mine)
	})
	b.RequestID = fmt.Sprint("req_", winner(t, errs, batch.ErrExists))
	same(t, "stored", look(t, p.Batches, b), b, "Ver")
}

// winner demands one success and refusals of want for all others, and gives the
// number of the one.
func winner(t T, errs []error, want error) int {
	t.Helper()
	won := -1
	for i, err := range errs {
		switch {
		case err != nil:
			refuses(t, "a loser", err, want)
		case won >= 0:
			t.Errorf("caller %d and caller %d both won", won, i)
		default:
			won = i
		}
	}
	if won < 0 {
		t.Fatalf("nobody won: %v", errs[0])
	}
	return won
}

func createShared(t T, p BatchesPorts) {
	b := fullBatch()
	first := begin(t, p.Batches, b)
	b.Metadata["key"] = "changed by the creator"
	second := look(t, p.Batches, b)
	same(t, "after the creator's change", second, first)
	second.Metadata["key"] = "changed by a reader"
	same(t, "after a reader's change", look(t, p.Batches, b), first)

	why := reasons(2)
	value(p.Batches.Refuse(t.Context(), b.Tenant, b.ID, why, at(0)))(t, "refuse")
	*why[1].Line, why[0].Code = -1, "changed"
	got := look(t, p.Batches, b)
	same(t, "after a change of the reasons", batch.Batch{Errors: got.Errors}, batch.Batch{Errors: reasons(2)})
	*got.Errors[1].Line = -2
	same(t, "after a reader's change", batch.Batch{Errors: look(t, p.Batches, b).Errors}, batch.Batch{Errors: reasons(2)})
}

func getUnknown(t T, p BatchesPorts) {
	b := begin(t, p.Batches, bareBatch())
	for _, id := range []string{"batch_none", b.ID + "x", b.ID[:len(b.ID)-1], ""} {
		refuses(t, fmt.Sprintf("get %q", id), fault(p.Batches.Get(t.Context(), b.Tenant, id)), batch.ErrNotFound)
	}
	refuses(t, "start", fault(p.Batches.Start(t.Context(), b.Tenant, "batch_none", batch.Started{}, at(0))), batch.ErrNotFound)
	refuses(t, "refuse", fault(p.Batches.Refuse(t.Context(), b.Tenant, "batch_none", nil, at(0))), batch.ErrNotFound)
	refuses(t, "overrun", fault(p.Batches.Overrun(t.Context(), b.Tenant, "batch_none", at(0))), batch.ErrNotFound)
	refuses(t, "get after those", fault(p.Batches.Get(t.Context(), b.Tenant, "batch_none")), batch.ErrNotFound)
}

func getForeign(t T, p BatchesPorts) {
	ctx := t.Context()
	mine := begin(t, p.Batches, fullBatch())
	foreign := tenant()
	refuses(t, "get", fault(p.Batches.Get(ctx, foreign, mine.ID)), batch.ErrNotFound)
	refuses(t, "start", fault(p.Batches.Start(ctx, foreign, mine.ID, batch.Started{Parts: 1}, at(0))), batch.ErrNotFound)
	refuses(t, "refuse", fault(p.Batches.Refuse(ctx, foreign, mine.ID, nil, at(0))), batch.ErrNotFound)

	refuses(t, "overrun", fault(p.Batches.Overrun(ctx, foreign, mine.ID, at(0))), batch.ErrNotFound)

	other := bareBatch()
	other.Tenant, other.ID = foreign, mine.ID
	begin(t, p.Batches, other)
	value(p.Batches.Start(ctx, foreign, mine.ID, batch.Started{Parts: 1}, at(0)))(t, "start the other tenant's")
	same(t, "after a namesake's start", look(t, p.Batches, mine), mine)
}

func batchesInterrupted(t T, p BatchesPorts) {
	b := begin(t, p.Batches, fullBatch())
	interrupts(t, map[string]func(context.Context) error{
		"Create": func(ctx context.Context) error { return p.Batches.Create(ctx, fullBatch()) },
		"Get":    func(ctx context.Context) error { return fault(p.Batches.Get(ctx, b.Tenant, b.ID)) },
		"Reading": func(ctx context.Context) error {
			return fault(p.Batches.Reading(ctx, b.Tenant, b.Input.FileID, at(0)))
		},
		"List": func(ctx context.Context) error {
			_, _, err := p.Batches.List(ctx, b.Tenant, "", 1)
			return err
		},
		"Start": func(ctx context.Context) error {
			return fault(p.Batches.Start(ctx, b.Tenant, b.ID, batch.Started{}, time.Time{}))
		},
		"Refuse": func(ctx context.Context) error { return fault(p.Batches.Refuse(ctx, b.Tenant, b.ID, nil, time.Time{})) },
		"Overrun": func(ctx context.Context) error {
			return fault(p.Batches.Overrun(ctx, b.Tenant, b.ID, time.Time{}))
		},
	})
	same(t, "after those", look(t, p.Batches, b), b)
}
