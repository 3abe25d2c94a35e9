package batch

// Metric names something that is counted for the operator. A name is that of the
// CloudWatch metric: alarms and dashboards hold on to it.
type Metric string

// The metrics. Unless said otherwise they are counts, to be summed.
const (
	MetricClaims       Metric = "Claims"         // parts claimed, stolen ones included
	MetricSteals       Metric = "Steals"         // parts taken from a lapsed holder by a worker
	MetricLeaseExpired Metric = "LeaseExpired"   // holders that went without a word, whoever noticed
	MetricRepeats      Metric = "Repeats"        // lines that may have been sent again for that
	MetricReaped       Metric = "Reaped"         // parts given back by the reaper
	MetricResent       Metric = "Resent"         // messages sent again because they were overdue
	MetricDeadParts    Metric = "DeadParts"      // parts declared dead
	MetricBlamed       Metric = "LinesBlamed"    // lines that killed two workers and got their error
	MetricCompleted    Metric = "LinesCompleted" // results that went to the output file
	MetricFailed       Metric = "LinesFailed"    // results that went to the error file
	MetricSlotUse      Metric = "SlotUse"        // percent of a run's slots that were busy; to be averaged
	MetricCircuitOpen  Metric = "CircuitOpen"    // a model answered nothing but errors
	MetricOverdue      Metric = "OverdueBatches" // batches open beyond their deadline and its drain, a gauge
	MetricBatchAge     Metric = "BatchAge"       // seconds that a batch took from creation to its end; to be averaged
	MetricBatches      Metric = "Batches"        // batches that came to their end
	MetricClaimSteals  Metric = "ClaimSteals"    // stale claims of a bridge, taken over by a delivery or the reaper
	MetricClaimRetries Metric = "ClaimRetries"   // claims that were given back for trouble, and taken up again
	MetricRefused      Metric = "Refused"        // objects and messages that start nothing, for a reason of their own

	MetricReplayRefused Metric = "ReplayRefused" // requests with a key that has batch_replay, for anything but a batch that runs
)

// Observer is told what happens. It is called beside the work, from any
// goroutine, and must not block. A nil one is told nothing.
type Observer func(m Metric, n float64)

// Add tells of n.
func (o Observer) Add(m Metric, n float64) {
	if o != nil && n != 0 {
		o(m, n)
	}
}
