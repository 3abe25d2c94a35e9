package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"holdfast/internal/batch"
)

// Workflow is batch.Workflow in process: it records, and runs nothing. Safe for
// concurrent use.
type Workflow struct {
	*log
	faults *Faults
}

var _ batch.Workflow = (*Workflow)(nil)

// log is what the views of a Workflow share.
type log struct {
	rules rules

	mu      sync.Mutex
	started map[string]Execution
	order   []string
	reports []string
}

// Execution is one that was started.
type Execution struct{ Name, Tenant, Batch string }

// NewWorkflow returns one that knows no execution; f may be nil.
func NewWorkflow(f *Faults) *Workflow { return newWorkflow(rules{}, f) }

func newWorkflow(r rules, f *Faults) *Workflow {
	return &Workflow{&log{rules: r, started: map[string]Execution{}}, f}
}

// With is a view of the same workflow with faults of its own: another process.
func (w *Workflow) With(f *Faults) *Workflow { return &Workflow{w.log, f} }

// Start is batch.Workflow.Start. A name taken with another input is ErrExists.
func (w *Workflow) Start(ctx context.Context, name, tenant, id string) error {
	return effect(ctx, w.faults, "Workflow.Start", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		e := Execution{name, tenant, id}
		old, there := w.started[name]
		if w.rules.must("workflow.absent", !there) {
			w.started[name] = e
			w.order = append(w.order, name)
			return nil
		}
		if w.rules.own("workflow.own", w.rules.must("workflow.own.job", old == e)) {
			return nil
		}
		return fmt.Errorf("start %s for another batch: %w", name, batch.ErrExists)
	})
}

// Report is batch.Workflow.Report. Every token is recorded, known or not.
func (w *Workflow) Report(ctx context.Context, taskToken string) error {
	return effect(ctx, w.faults, "Workflow.Report", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reports = append(w.reports, taskToken)
		return nil
	})
}

// Executions is a look at what was started, in order, that no fault can touch.
func (w *Workflow) Executions() (all []Execution) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range w.order {
		all = append(all, w.started[name])
	}
	return all
}

// Reports is a look at the tokens reported, in order, with repetitions.
func (w *Workflow) Reports() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.reports)
}
