package memory

import "time"

// Options make a Memory. The zero value works: no faults, every clause holds.
type Options struct {
	// Faults are those of every port; nil: none.
	Faults *Faults
	// Drop names the one clause (see Clauses) that the store ignores. An unknown
	// name panics.
	Drop string
}

// Memory is one store of each kind, empty at first.
type Memory struct {
	Table    *Table
	Objects  *Objects
	Queue    *Queue
	Workflow *Workflow
}

// New returns empty stores that share o's faults.
func New(o Options) *Memory {
	r := dropping(o.Drop)
	return &Memory{
		Table:    newTable(r, o.Faults),
		Objects:  newObjects(r, o.Faults),
		Queue:    newQueue(r, o.Faults),
		Workflow: newWorkflow(r, o.Faults),
	}
}

// With is a view of the same stores with faults of its own: another process.
func (m *Memory) With(f *Faults) *Memory {
	return &Memory{Table: m.Table.With(f), Objects: m.Objects.With(f), Queue: m.Queue.With(f), Workflow: m.Workflow.With(f)}
}

// millis is t as it is stored: whole milliseconds, UTC, zero stays zero.
func millis(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMilli(t.UnixMilli()).UTC()
}
