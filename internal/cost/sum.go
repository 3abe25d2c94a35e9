package cost

import "math"

// Sum adds up usage lines of one batch.
type Sum struct {
	Tenant, Batch string

	Usage Usage
	// Calls are those made for the batch by name, and Runs its invocations by
	// function.
	Calls map[string]Calls
	Runs  map[string]int
	// Lines are the results that these invocations committed. A result is committed
	// once, by whoever replays a line last; an invocation that died wrote no line of
	// usage, and what it committed is missing here.
	Lines    int
	Upstream Upstream
	Slots    int     // the most that a worker was set to
	Memory   float64 // of the work function, MB
}

// NewSum is a sum of nothing yet, of one batch.
func NewSum(tenant, batch string) *Sum {
	return &Sum{Tenant: tenant, Batch: batch, Usage: Usage{}, Calls: map[string]Calls{}, Runs: map[string]int{}}
}

// Add counts one invocation, whose log line had so many bytes; false if it did
// nothing for the batch.
func (s *Sum) Add(i Invocation, size int) bool {
	share, ok := i.Of(s.Tenant, s.Batch)
	if !ok {
		return false
	}
	s.Usage.Merge(i.Usage(share, size), 1)
	for name, c := range share.Calls {
		s.Calls[name] = s.Calls[name].Plus(c)
	}
	s.Runs[i.Function]++
	s.Lines += share.Lines
	s.Upstream.Requests += share.Upstream.Requests
	s.Upstream.Waited += share.Upstream.Waited
	s.Slots = max(s.Slots, i.Slots)
	if i.Function == "work" {
		s.Memory = math.Max(s.Memory, float64(i.Memory))
	}
	return true
}

// Workflow counts what the execution was billed for: its transitions, and the
// messages that it sent. Of its log an event is some 450 bytes.
func (s *Sum) Workflow(transitions, messages int) {
	const events, event = 4, 450 // of a transition; bytes
	s.Usage.Add(Transitions, float64(transitions))
	s.Usage.Add(QueueRequests, float64(messages))
	s.Usage.Add(LogBytes, float64(transitions*events*event)/gb)
}
