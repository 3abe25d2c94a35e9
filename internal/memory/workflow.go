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
	stopped map[string]bool
	dead    map[string]bool
	over    map[string]bool
	order   []string
	reports []string
}

// Execution is one that was started.
type Execution struct {
	Name, Tenant, Batch string
	Finish              bool // it only finishes
}

// NewWorkflow returns one that knows no execution; f may be nil.
func NewWorkflow(f *Faults) *Workflow { return newWorkflow(rules{}, f) }

func newWorkflow(r rules, f *Faults) *Workflow {
	return &Workflow{&log{rules: r, started: map[string]Execution{}, stopped: map[string]bool{}, dead: map[string]bool{}, over: map[string]bool{}}, f}
}

// With is a view of the same workflow with faults of its own: another process.
func (w *Workflow) With(f *Faults) *Workflow { return &Workflow{w.log, f} }

// Start is batch.Workflow.Start. A name taken with another input is ErrExists, one
// of an execution that was killed ErrEnded.
func (w *Workflow) Start(ctx context.Context, name, tenant, id string) error {
	return effect(ctx, w.faults, "Workflow.Start", func() error {
		return w.start(Execution{Name: name, Tenant: tenant, Batch: id})
	})
}

// Finish is batch.Workflow.Finish. A name taken with another input is ErrExists,
// one of an execution that was killed ErrEnded.
func (w *Workflow) Finish(ctx context.Context, name, tenant, id string) error {
	return effect(ctx, w.faults, "Workflow.Finish", func() error {
		return w.start(Execution{Name: name, Tenant: tenant, Batch: id, Finish: true})
	})
}

func (w *Workflow) start(e Execution) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, there := w.started[e.Name]
	if w.rules.must("workflow.absent", !there) {
		w.started[e.Name] = e
		w.order = append(w.order, e.Name)
		return nil
	}
	same, alive := w.rules.must("workflow.own.job", old == e), w.rules.must("workflow.own.alive", !w.dead[e.Name])
	switch {
	case w.rules.own("workflow.own", same && alive):
		return nil
	case old == e && !alive:
		return fmt.Errorf("start %s: %w", e.Name, batch.ErrEnded)
	}
	return fmt.Errorf("start %s for another batch: %w", e.Name, batch.ErrExists)
}

// Kill makes an execution one that ended without success.
func (w *Workflow) Kill(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[name] = true
}

// Stop is batch.Workflow.Stop. It only records, names that nothing was started
// under too; the end of what was stopped is [Workflow.Kill].
func (w *Workflow) Stop(ctx context.Context, name string) error {
	return effect(ctx, w.faults, "Workflow.Stop", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stopped[name] = true
		return nil
	})
}

// Seen is batch.Workflow.Seen. What was started runs until it is stopped, killed
// or over ([Workflow.End]).
func (w *Workflow) Seen(ctx context.Context, name string) (batch.Execution, error) {
	return call(ctx, w.faults, "Workflow.Seen", func() (batch.Execution, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, there := w.started[name]
		switch {
		case !there:
			return batch.Never, nil
		case w.dead[name] || w.stopped[name]:
			return batch.Fallen, nil
		case w.over[name]:
			return batch.Over, nil
		}
		return batch.Running, nil
	})
}

// End makes an execution one that succeeded.
func (w *Workflow) End(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over[name] = true
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

// Stopped is a look at whether an execution was stopped.
func (w *Workflow) Stopped(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped[name]
}

// Reports is a look at the tokens reported, in order, with repetitions.
func (w *Workflow) Reports() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.reports)
}
