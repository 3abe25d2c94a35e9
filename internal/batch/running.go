package batch

import "time"

// MaxDrain is the longest that a batch which ends early drains, whatever is
// configured: the bound of promise 7.
const MaxDrain = 10 * time.Minute

// Running reports whether lines of the batch may be begun: it is in_progress, and
// nobody has decided how it ends.
func (b Batch) Running() bool { return b.Status == InProgress && b.Ending == "" }

// Replayable reports whether somebody may still act for the batch's submitter. A
// worker of ours begins lines while the batch is Running and, when it ends early,
// lets come back what is on its way. Who asks for one line at a time can't be told
// which of the two a request is; such may ask while the batch is Running, and for as
// long as workers may drain after that: until it is finalizing, and for drain
// (at most MaxDrain) since its end was decided. A batch that ends because every
// line has its result has nothing to drain.
//
// The rule is asked in two places, of a view that is 5 s old at most in both: here,
// in the Runner (whose view.running is Running, and so never more than this), and
// by the gateway.
func (b Batch) Replayable(now time.Time, drain time.Duration) bool {
	if b.Running() {
		return true
	}
	early := b.Ending == Cancelled || b.Ending == Expired
	return b.Status == InProgress && early && now.Before(b.EndingAt.Add(min(drain, MaxDrain)))
}
