package metrics

import (
	"slices"

	"github.com/prozz/aws-embedded-metrics-golang/emf"

	"holdfast/internal/batch"
)

// Namespace of all metrics.
const Namespace = "Holdfast"

// How says what becomes of several values of one metric in one line.
type How int

// The ways.
const (
	Sum  How = iota // they are added: counts
	Mean            // their mean is written
	Last            // a gauge: the newest holds
)

// Row is one metric.
type Row struct {
	Name batch.Metric
	Unit emf.MetricUnit
	How  How
	// AtOnce: work writes it when it happens and not at the end of the invocation.
	// That is for what comes with a death: whoever steals the part of a line that
	// kills workers is likely to die of it too, and would never tell.
	AtOnce bool
	By     []string // functions that write it
}

// Table is every metric, in the order of docs/operations.md, which says what each
// means. A metric that is missing here is not written.
var Table = []Row{
	{batch.MetricClaims, emf.Count, Sum, false, []string{"work"}},
	{batch.MetricSteals, emf.Count, Sum, true, []string{"work"}},
	{batch.MetricLeaseExpired, emf.Count, Sum, true, []string{"work", "reap", "api"}},
	{batch.MetricRepeats, emf.Count, Sum, true, []string{"work", "reap", "api"}},
	{batch.MetricReaped, emf.Count, Sum, false, []string{"reap", "api"}},
	{batch.MetricResent, emf.Count, Sum, false, []string{"reap", "api"}},
	{batch.MetricDeadParts, emf.Count, Sum, true, []string{"work", "reap", "api"}},
	{batch.MetricBlamed, emf.Count, Sum, true, []string{"work"}},
	{batch.MetricCompleted, emf.Count, Sum, false, []string{"work"}},
	{batch.MetricFailed, emf.Count, Sum, false, []string{"work"}},
	{batch.MetricSlotUse, emf.Percent, Mean, false, []string{"work"}},
	{batch.MetricCircuitOpen, emf.Count, Sum, true, []string{"work"}},
	{batch.MetricOverdue, emf.Count, Last, false, []string{"reap"}},
	{batch.MetricBatchAge, emf.Seconds, Mean, false, []string{"finish"}},
	{batch.MetricBatches, emf.Count, Sum, false, []string{"finish"}},
	{batch.MetricClaimSteals, emf.Count, Sum, false, []string{"ingest", "api", "reap"}},
	{batch.MetricClaimRetries, emf.Count, Sum, false, []string{"ingest", "api", "reap"}},
	{batch.MetricRefused, emf.Count, Sum, false, []string{"ingest"}},
	{batch.MetricReplayRefused, emf.Count, Sum, false, []string{"gateway", "api"}},
}

// find gives the position of a metric's row, -1 if it has none.
func find(m batch.Metric) int {
	return slices.IndexFunc(Table, func(r Row) bool { return r.Name == m })
}
