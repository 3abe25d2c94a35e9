package batch

import "context"

// Subject is the batch that a call is made for. It travels in the context, so
// that whoever counts calls beneath the ports can say what each batch cost. It
// decides nothing.
type Subject struct{ Tenant, Batch string }

type subjectKey struct{}

// WithSubject returns a context whose calls are made for this batch.
func WithSubject(ctx context.Context, tenant, batch string) context.Context {
	return context.WithValue(ctx, subjectKey{}, Subject{tenant, batch})
}

// SubjectOf returns the batch that ctx's calls are made for; the zero Subject
// where nobody said so.
func SubjectOf(ctx context.Context) Subject {
	s, _ := ctx.Value(subjectKey{}).(Subject)
	return s
}

// add counts results committed for a batch.
func (o *Outcome) add(s Subject, lines int) {
	o.Tally.Lines += lines
	if o.Lines == nil {
		o.Lines = map[Subject]int{}
	}
	o.Lines[s] += lines
}
