package reap

import "holdfast/internal/batch"

// Report counts what a round did.
type Report struct {
	Reaped   int `json:"reaped"`   // parts of workers that went without a word, given back
	Resent   int `json:"resent"`   // messages sent again because they were overdue
	Dead     int `json:"dead"`     // parts declared dead
	Sealed   int `json:"sealed"`   // parts closed: dead beyond their grace, or left behind by a batch that is over
	Expired  int `json:"expired"`  // batches whose window was over
	Started  int `json:"started"`  // executions started, in the place of one that fell, that plan a batch and wait for it
	Finished int `json:"finished"` // executions started that only finish a batch
	Letters  int `json:"letters"`  // dead letters dealt with

	Resubmitted int `json:"resubmitted"` // jobs started, or found, for those whose claim went stale
	Refused     int `json:"refused"`     // such that were refused: their correlation ids are free again

	Left    int  `json:"left"`    // rows that are due but not the reaper's
	Failed  int  `json:"failed"`  // items left to the next round because of an error
	Overdue int  `json:"overdue"` // batches still open an hour after their window
	More    bool `json:"more"`    // not everything was looked at: time was up, or too much was due
}

// Done is how many things the round did something about.
func (r Report) Done() int {
	return r.Reaped + r.Resent + r.Dead + r.Sealed + r.Expired + r.Started + r.Finished + r.Letters + r.Resubmitted + r.Refused
}

// Plus adds up what two rounds did, one after the other. More is the second's, and
// so is Overdue, which is no sum.
func (r Report) Plus(next Report) Report {
	next.Reaped += r.Reaped
	next.Resent += r.Resent
	next.Dead += r.Dead
	next.Sealed += r.Sealed
	next.Expired += r.Expired
	next.Started += r.Started
	next.Finished += r.Finished
	next.Letters += r.Letters
	next.Resubmitted += r.Resubmitted
	next.Refused += r.Refused
	next.Left += r.Left
	next.Failed += r.Failed
	return next
}

// observe tells the metrics. How many batches are late only a round over
// everything knows; which claims were stolen their bridge tells (Options.Stolen),
// here as at every door.
func (r *Reaper) observe(rep Report, scope Scope) {
	m := r.o.Observer
	m.Add(batch.MetricReaped, float64(rep.Reaped))
	m.Add(batch.MetricResent, float64(rep.Resent))
	m.Add(batch.MetricDeadParts, float64(rep.Dead))
	if scope.Tenant == "" {
		m.Add(batch.MetricOverdue, float64(rep.Overdue))
	}
}
