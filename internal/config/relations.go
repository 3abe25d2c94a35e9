package config

import (
	"fmt"
	"strings"
	"time"
)

// relation is a rule between settings that are each within their own bounds.
type relation struct {
	between []string
	rule    string
	why     string
	holds   func(Settings) bool
}

// MaxParts is how many parts a batch may have. Each is an execution of a
// Distributed Map and answers with {} and a comma; 256 KiB, the most that a state
// holds, are 87,381 of those. And who looks at a batch that runs reads all of its
// parts' items.
const MaxParts = 80_000

var relations = []relation{
	{
		[]string{"HOLDFAST_LEASE", "HOLDFAST_HEARTBEAT"},
		"the lease must be at least 4 heartbeats",
		"three heartbeats may fail before a live worker is robbed",
		func(s Settings) bool { return s.Lease >= 4*s.Heartbeat },
	},
	{
		[]string{"HOLDFAST_LEASE", "HOLDFAST_SKEW"},
		"the lease and the skew margin together must be at most 12h",
		"a bounced message is hidden until the holder's lease has lapsed, and SQS hides it no longer",
		func(s Settings) bool { return s.Lease+s.Skew <= sqsVisibilityLimit },
	},
	{
		[]string{"HOLDFAST_LINE_TIMEOUT", "HOLDFAST_MARGIN", "HOLDFAST_FUNCTION_TIMEOUT"},
		"the line timeout and the margin together must be below the function timeout",
		"otherwise no line could ever be sent",
		func(s Settings) bool { return s.LineTimeout+s.Margin < s.FunctionTimeout },
	},
	{
		[]string{"HOLDFAST_LONG_WAIT", "HOLDFAST_MARGIN", "HOLDFAST_FUNCTION_TIMEOUT"},
		"the longest wait inside a worker and the margin together must be below the function timeout",
		"a wait must end while there is time to hand over",
		func(s Settings) bool { return s.LongWait+s.Margin < s.FunctionTimeout },
	},
	{
		[]string{"HOLDFAST_PART_LINES", "HOLDFAST_CHECKPOINT_LINES"},
		"a part must need at most 100 checkpoints by lines",
		"each chunk is named in the part's item, which holds 400 KB",
		func(s Settings) bool { return s.PartLines <= 100*s.CheckpointLines },
	},
	{
		[]string{"HOLDFAST_FILE_LINES", "HOLDFAST_PART_LINES", "HOLDFAST_FILE_BYTES"},
		"a file must be cut into at most 80,000 parts (by lines, and one more for each 64 MiB)",
		"what their executions answer must fit a state of 256 KiB, and a look at a running batch reads all of their items",
		func(s Settings) bool {
			return int64(s.FileLines)/int64(max(s.PartLines, 1))+s.FileBytes/(64*mib) <= MaxParts
		},
	},
	{
		[]string{"HOLDFAST_LINE_BYTES", "HOLDFAST_FILE_BYTES"},
		"a line must not be allowed to be larger than a file",
		"one of the two limits could never be met",
		func(s Settings) bool { return s.LineBytes <= s.FileBytes },
	},
	{
		[]string{"HOLDFAST_DIRECT_BYTES", "HOLDFAST_FILE_BYTES"},
		"a direct upload must not be allowed to be larger than a file",
		"one of the two limits could never be met",
		func(s Settings) bool { return s.DirectBytes <= s.FileBytes },
	},
	{
		[]string{"HOLDFAST_CONCURRENCY_FLOOR", "HOLDFAST_CONCURRENCY", "HOLDFAST_CONCURRENCY_CEILING"},
		"the concurrency must lie between its floor and its ceiling",
		"it is where a worker begins, before it knows what the model takes",
		func(s Settings) bool {
			return s.ConcurrencyFloor <= s.Concurrency && s.Concurrency <= s.ConcurrencyCeiling
		},
	},
	{
		[]string{"HOLDFAST_WORK_MEMORY", "HOLDFAST_CHECKPOINT_BYTES", "HOLDFAST_LINE_BYTES", "HOLDFAST_REPLY_BYTES", "HOLDFAST_CONCURRENCY_CEILING"},
		"two windows of checkpoint bytes, a line, a reply and 64 KiB for each request in flight must fit half the worker's memory",
		"memory is bounded by the uncommitted window and the connections; the rest is the runtime's and the collector's",
		func(s Settings) bool {
			return 2*s.CheckpointBytes+s.LineBytes+s.ReplyBytes+int64(s.ConcurrencyCeiling)*64*kib <= int64(s.WorkMemory)*mib/2
		},
	},
	{
		[]string{"HOLDFAST_WAIT_TIMEOUT", "HOLDFAST_WINDOWS"},
		"the wait's timeout must be above the longest window",
		"the table ends a batch at its deadline; its workflow must still be there to see it",
		func(s Settings) bool { return s.WaitTimeout > s.LongestWindow() },
	},
	{
		[]string{"HOLDFAST_WAIT_HEARTBEAT", "HOLDFAST_WAIT_TIMEOUT"},
		"the wait's heartbeat must be below its timeout",
		"Step Functions refuses the definition otherwise",
		func(s Settings) bool { return s.WaitHeartbeat < s.WaitTimeout },
	},
	{
		[]string{"HOLDFAST_WAIT_HEARTBEAT", "HOLDFAST_FUNCTION_TIMEOUT"},
		"the wait's heartbeat must be above the function timeout",
		"a worker may be silent for a function's whole life",
		func(s Settings) bool { return s.WaitHeartbeat > s.FunctionTimeout },
	},
	{
		[]string{"HOLDFAST_RETENTION", "HOLDFAST_WAIT_TIMEOUT"},
		"a message must be kept longer than the wait for its part",
		"the wait that times out sends a new one; until then nobody would",
		func(s Settings) bool { return s.Retention > s.WaitTimeout },
	},
	{
		[]string{"HOLDFAST_FILE_EXPIRY", "HOLDFAST_WINDOWS"},
		"a file must live longer than the longest window",
		"a batch reads its input until it ends",
		func(s Settings) bool { return s.FileExpiry > s.LongestWindow() },
	},
	{
		[]string{claimStale, "HOLDFAST_SUBMIT_TIMEOUT"},
		"a claim must turn stale at least 10s later than a submit is ended",
		"an owner settles what came of it in 5s, and two clocks may differ by 5s: otherwise live owners would be robbed as a rule",
		func(s Settings) bool { return s.ClaimStale >= s.SubmitTimeout+10*time.Second },
	},
	{
		[]string{"HOLDFAST_INGEST_RECEIVES", claimStale},
		"a message's tries, 15m or half a claim's age apart, must end within 6 days",
		"the ingest queue drops what is older than 7 days without a word of it",
		func(s Settings) bool {
			return time.Duration(s.IngestReceives)*max(longestIngestWait, s.ClaimStale/2) <= IngestRetention-24*time.Hour
		},
	},
}

// Fault is one variable whose value can't be used.
type Fault struct {
	Name    string // the variable
	Value   string // as it was set; empty when it is missing
	Allowed string // what would do, in words
}

func (f *Fault) Error() string {
	if f.Value == "" {
		return fmt.Sprintf("%s is missing: must be %s", f.Name, f.Allowed)
	}
	return fmt.Sprintf("%s=%s: must be %s", f.Name, f.Value, f.Allowed)
}

// BrokenRelation is a rule between settings that their values break.
type BrokenRelation struct {
	Values string // NAME=value of each setting concerned
	Rule   string
	Why    string
}

func (b *BrokenRelation) Error() string {
	return fmt.Sprintf("%s: %s (%s)", b.Values, b.Rule, b.Why)
}

func broken(rel relation, s Settings) error {
	var values []string
	for _, name := range rel.between {
		for _, r := range table {
			if r.name == name {
				values = append(values, name+"="+r.value(s))
			}
		}
	}
	return &BrokenRelation{Values: strings.Join(values, ", "), Rule: rel.rule, Why: rel.why}
}
