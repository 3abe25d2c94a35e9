package batch

import "context"

// MergeHolding is Merge with another bound for the chunks that are held.
func MergeHolding(ctx context.Context, objects Objects, bucket string, p Part, held int, emit func(Record) error) error {
	m := newMerger(objects, bucket, held)
	return m.each(ctx, oneAfterAnother(p), func(l *loaded) error { return m.merge(ctx, l, nil, emit) })
}
