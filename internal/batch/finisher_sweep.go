package batch

import (
	"context"
	"time"
)

// sweep deletes the chunks of a terminal batch, and the tails that its progress
// named. Best effort: nobody reads them any more, and the store's lifecycle is the
// backstop, also for tails whose finisher died before it could name them.
//
// It ends while there is time to say that the batch is closed: a caller that hears
// nothing takes a batch that is over for one that fell.
func (f *Finisher) sweep(ctx context.Context, b Batch) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-min(f.o.Margin, time.Until(deadline)/2)))
		defer cancel()
	}
	const most = 1000 // keys a call
	keys := make([]string, 0, most)
	flush := func() {
		if len(keys) == 0 || ctx.Err() != nil {
			return
		}
		if err := f.Objects.Delete(ctx, f.bucket, keys); err != nil {
			f.o.Log.WarnContext(ctx, "chunks were not deleted", "tenant", b.Tenant, "batch", b.ID, "chunks", len(keys), "error", err)
		}
		keys = keys[:0]
	}
	keys = append(keys, b.Progress.tails(b.Tenant, b.ID)...)
	for p, err := range f.Parts.All(ctx, b.Tenant, b.ID) {
		if err != nil {
			f.o.Log.WarnContext(ctx, "chunks were not found", "tenant", b.Tenant, "batch", b.ID, "error", err)
			break
		}
		for _, c := range p.Chunks {
			if keys = append(keys, c.Key); len(keys) == most {
				flush()
			}
		}
	}
	flush()
}
