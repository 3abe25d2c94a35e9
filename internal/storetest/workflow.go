package storetest

import (
	"context"
	"errors"
	"testing"

	"holdfast/internal/batch"
)

// RunWorkflow runs the suite of batch.Workflow. The executions that it starts
// are of batches that don't exist.
func RunWorkflow(t *testing.T, open func(T) batch.Workflow) {
	t.Helper()
	run(t, WorkflowCases(), open)
}

// WorkflowCases is the suite of batch.Workflow. That a report reaches who waits
// for it takes a task token, and so a running workflow: it is not here.
func WorkflowCases() []Case[batch.Workflow] {
	return []Case[batch.Workflow]{
		{"start/again with the same input is success", startSame},
		{"start/a name taken with another input", startTaken},
		{"start/many at once are one", startAtOnce},
		{"finish/again with the same input is success", finishSame},
		{"finish/a name taken by another start", finishTaken},
		{"start/an execution that died is no success", startDead},
		{"finish/an execution that died is no success", finishDead},
		{"stop/whatever there is to stop", stopAny},
		{"seen/one that runs, one that was stopped, and none", seenAny},
		{"report/a token that nobody knows", reportUnknown},
		{"a context that is over", workflowInterrupted},
	}
}

func startSame(t T, w batch.Workflow) {
	k := key(0)
	for range 3 {
		succeeds(t, "start", w.Start(t.Context(), k.Batch, k.Tenant, k.Batch))
	}
	succeeds(t, "start under another name", w.Start(t.Context(), k.Batch+"-finish-7", k.Tenant, k.Batch))
}

func startTaken(t T, w batch.Workflow) {
	k, other := key(0), key(0)
	succeeds(t, "start", w.Start(t.Context(), k.Batch, k.Tenant, k.Batch))
	for range 2 {
		refuses(t, "start for another batch", w.Start(t.Context(), k.Batch, k.Tenant, other.Batch), batch.ErrExists)
		refuses(t, "start for another tenant", w.Start(t.Context(), k.Batch, other.Tenant, k.Batch), batch.ErrExists)
	}
	succeeds(t, "start again", w.Start(t.Context(), k.Batch, k.Tenant, k.Batch))
}

func startAtOnce(t T, w batch.Workflow) {
	k := key(0)
	for _, err := range race(8, func(int) error { return w.Start(t.Context(), k.Batch, k.Tenant, k.Batch) }) {
		succeeds(t, "start", err)
	}
}

func finishSame(t T, w batch.Workflow) {
	k := key(0)
	succeeds(t, "start", w.Start(t.Context(), k.Batch, k.Tenant, k.Batch))
	for range 3 {
		succeeds(t, "finish", w.Finish(t.Context(), k.Batch+"-finish-3", k.Tenant, k.Batch))
	}
	for _, err := range race(8, func(int) error { return w.Finish(t.Context(), k.Batch+"-finish-4", k.Tenant, k.Batch) }) {
		succeeds(t, "finish at once", err)
	}
}

// finishTaken: one that only finishes is not the one that runs the batch.
func finishTaken(t T, w batch.Workflow) {
	k, other := key(0), key(0)
	succeeds(t, "start", w.Start(t.Context(), k.Batch, k.Tenant, k.Batch))
	refuses(t, "finish under the name of a start", w.Finish(t.Context(), k.Batch, k.Tenant, k.Batch), batch.ErrExists)
	name := k.Batch + "-finish-3"
	succeeds(t, "finish", w.Finish(t.Context(), name, k.Tenant, k.Batch))
	refuses(t, "finish of another batch", w.Finish(t.Context(), name, k.Tenant, other.Batch), batch.ErrExists)
	refuses(t, "start under the name of a finish", w.Start(t.Context(), name, k.Tenant, k.Batch), batch.ErrExists)
}

// kill ends an execution without success.
func kill(t T, w batch.Workflow, name string) {
	t.Helper()
	succeeds(t, "stop", w.Stop(t.Context(), name))
	if w, ok := w.(interface{ Kill(name string) }); ok {
		w.Kill(name)
	}
}

// startDead: who is told that an execution was started relies on it.
func startDead(t T, w batch.Workflow) {
	k, other := key(0), key(0)
	succeeds(t, "start", w.Start(t.Context(), k.Batch, k.Tenant, k.Batch))
	kill(t, w, k.Batch)
	for range 2 {
		refuses(t, "start again", w.Start(t.Context(), k.Batch, k.Tenant, k.Batch), batch.ErrEnded)
	}
	err := w.Start(t.Context(), k.Batch, k.Tenant, other.Batch)
	if refuses(t, "start for another batch", err, batch.ErrExists); errors.Is(err, batch.ErrEnded) {
		t.Errorf("start for another batch: %v, as if it were the same", err)
	}
	for range 2 {
		succeeds(t, "start under another name", w.Start(t.Context(), k.Batch+"-2", k.Tenant, k.Batch))
	}
}

func finishDead(t T, w batch.Workflow) {
	k := key(0)
	name := k.Batch + "-finish-3"
	succeeds(t, "finish", w.Finish(t.Context(), name, k.Tenant, k.Batch))
	kill(t, w, name)
	refuses(t, "finish again", w.Finish(t.Context(), name, k.Tenant, k.Batch), batch.ErrEnded)
	succeeds(t, "finish under another name", w.Finish(t.Context(), name+"-2", k.Tenant, k.Batch))
}

// stopAny: running, over, stopped before and never started are all the same to
// the caller, and a name that was stopped stays taken.
func stopAny(t T, w batch.Workflow) {
	k := key(0)
	succeeds(t, "stop before the start", w.Stop(t.Context(), k.Batch))
	succeeds(t, "start", w.Start(t.Context(), k.Batch, k.Tenant, k.Batch))
	for range 3 {
		succeeds(t, "stop", w.Stop(t.Context(), k.Batch))
	}
	refuses(t, "finish under its name", w.Finish(t.Context(), k.Batch, k.Tenant, k.Batch), batch.ErrExists)
}

// seenAny: only one that ran to its own end is over, which a suite can't bring
// about.
func seenAny(t T, w batch.Workflow) {
	k := key(0)
	is := func(what, name string, want batch.Execution) {
		t.Helper()
		if got := value(w.Seen(t.Context(), name))(t, "seen"); got != want {
			t.Errorf("%s is %q, want %q", what, got, want)
		}
	}
	is("an execution that was never started", k.Batch, batch.Never)
	succeeds(t, "stop it", w.Stop(t.Context(), k.Batch))
	is("one that was stopped and never started", k.Batch, batch.Never)
	succeeds(t, "start", w.Start(t.Context(), k.Batch+"-2", k.Tenant, k.Batch))
	succeeds(t, "finish", w.Finish(t.Context(), k.Batch+"-finish-1", k.Tenant, k.Batch))
	for range 2 {
		is("one that was started", k.Batch+"-2", batch.Running)
		is("one that only finishes", k.Batch+"-finish-1", batch.Running)
	}
	kill(t, w, k.Batch+"-2")
	is("one that was stopped", k.Batch+"-2", batch.Fallen)
	is("the other", k.Batch+"-finish-1", batch.Running)
}

func reportUnknown(t T, w batch.Workflow) {
	for _, token := range []string{"AQDEAAAAKgAAAAMAAAAAAAAAAX" + unique(), task, ""} {
		succeeds(t, "report", w.Report(t.Context(), token))
	}
}

func workflowInterrupted(t T, w batch.Workflow) {
	k := key(0)
	interrupts(t, map[string]func(context.Context) error{
		"Start":  func(ctx context.Context) error { return w.Start(ctx, k.Batch, k.Tenant, k.Batch) },
		"Finish": func(ctx context.Context) error { return w.Finish(ctx, k.Batch+"-finish-1", k.Tenant, k.Batch) },
		"Stop":   func(ctx context.Context) error { return w.Stop(ctx, k.Batch) },
		"Seen":   func(ctx context.Context) error { return fault(w.Seen(ctx, k.Batch)) },
		"Report": func(ctx context.Context) error { return w.Report(ctx, task) },
	})
}
