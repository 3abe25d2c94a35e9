package config

import "time"

const (
	kib = 1 << 10
	mib = 1 << 20

	second = int64(time.Second)
	minute = int64(time.Minute)
	hour   = int64(time.Hour)
	day    = 24 * hour
)

// sqsVisibilityLimit is the longest that SQS hides a message.
const sqsVisibilityLimit = 12 * time.Hour

// table is every setting there is. Durations are nanoseconds here.
var table = []row{
	{"HOLDFAST_FILE_LINES", lines, 50_000, 1, 10_000_000,
		"OpenAI's own limit; the plan keeps 16 bytes a line to find duplicate ids",
		number(func(s *Settings) *int { return &s.FileLines })},
	{"HOLDFAST_FILE_BYTES", bytes, 200_000_000, 1, 10_000_000_000,
		"OpenAI's own limit; 10 GB is what one plan reads in a function's life",
		number(func(s *Settings) *int64 { return &s.FileBytes })},
	{"HOLDFAST_LINE_BYTES", bytes, 4 * mib, 1 * kib, 10 * mib,
		"a line is held whole while it is sent, so it counts against the worker's memory",
		number(func(s *Settings) *int64 { return &s.LineBytes })},
	{"HOLDFAST_NESTING", levels, 1_000, 16, 1_000,
		"deeper JSON is refused instead of overflowing a stack somewhere downstream",
		number(func(s *Settings) *int { return &s.Nesting })},
	{"HOLDFAST_REPLY_BYTES", bytes, 16 * mib, 1 * kib, 64 * mib,
		"a reply is held whole until its checkpoint; a larger one becomes response_too_large",
		number(func(s *Settings) *int64 { return &s.ReplyBytes })},
	{"HOLDFAST_DIRECT_BYTES", bytes, 4 * mib, 1 * kib, 4 * mib,
		"Lambda takes 6 MB, and an upload arrives as base64: 4 MiB is the most that fits",
		number(func(s *Settings) *int64 { return &s.DirectBytes })},

	{"HOLDFAST_PART_LINES", lines, 500, 1, 1_000,
		"P: what one worker holds; a chunk may have one line, and all are named in an item of 400 KB",
		number(func(s *Settings) *int { return &s.PartLines })},
	{"HOLDFAST_CHECKPOINT_LINES", lines, 100, 1, 2_000,
		"C: a crash repeats at most C + the ceiling in lines of a part; each checkpoint costs two writes",
		number(func(s *Settings) *int { return &s.CheckpointLines })},
	{"HOLDFAST_CHECKPOINT_EVERY", duration, 15 * second, second / 10, 5 * minute,
		"a slow part is saved by time where it isn't by lines",
		number(func(s *Settings) *time.Duration { return &s.CheckpointEvery })},
	{"HOLDFAST_CHECKPOINT_BYTES", bytes, 8 * mib, 64 * kib, 64 * mib,
		"long replies are saved by size where they aren't by lines; bounds the memory",
		number(func(s *Settings) *int64 { return &s.CheckpointBytes })},

	{"HOLDFAST_CONCURRENCY", requests, 32, 1, 128,
		"K: requests in flight to a model in one worker, at first; then as the model's answers say",
		number(func(s *Settings) *int { return &s.Concurrency })},
	{"HOLDFAST_CONCURRENCY_FLOOR", requests, 1, 1, 128,
		"what a model that refuses is still asked for by each worker; 1 is enough to notice its recovery",
		number(func(s *Settings) *int { return &s.ConcurrencyFloor })},
	{"HOLDFAST_CONCURRENCY_CEILING", requests, 128, 1, 128,
		"in flight in one worker to all models; times the workers it is the most that a model sees at once",
		number(func(s *Settings) *int { return &s.ConcurrencyCeiling })},
	{"HOLDFAST_MAX_CONCURRENCY", functions, 20, 2, 1_000,
		"MaximumConcurrency of the event source, whose own bounds these are",
		number(func(s *Settings) *int { return &s.MaxConcurrency })},
	{"HOLDFAST_WORK_MEMORY", megabytes, 512, 128, 10_240,
		"Lambda's own bounds; the worker waits most of its life, so memory is what it costs",
		number(func(s *Settings) *int { return &s.WorkMemory })},

	{"HOLDFAST_LEASE", seconds, 120 * second, 2 * second, int64(sqsVisibilityLimit),
		"how long a dead worker's part stays hidden; SQS hides a message for 12 h at most",
		number(func(s *Settings) *time.Duration { return &s.Lease })},
	{"HOLDFAST_HEARTBEAT", duration, 0, second / 4, 3 * hour,
		"a quarter of the lease unless set, so that three may fail before the lease is lost",
		number(func(s *Settings) *time.Duration { return &s.Heartbeat })},
	{"HOLDFAST_SKEW", duration, 5 * second, 0, minute,
		"a lapsed lease is stolen this much later; liveness only, tokens make it safe",
		number(func(s *Settings) *time.Duration { return &s.Skew })},

	{"HOLDFAST_LINE_TIMEOUT", duration, 120 * second, second, 14 * minute,
		"one try of one line; it must fit the function's life",
		number(func(s *Settings) *time.Duration { return &s.LineTimeout })},
	{"HOLDFAST_FUNCTION_TIMEOUT", seconds, 900 * second, 5 * second, 900 * second,
		"Lambda's longest; also the work queue's default visibility",
		number(func(s *Settings) *time.Duration { return &s.FunctionTimeout })},
	{"HOLDFAST_MARGIN", duration, 60 * second, second, 5 * minute,
		"time to drain, checkpoint and hand over before the function is ended",
		number(func(s *Settings) *time.Duration { return &s.Margin })},
	{"HOLDFAST_LINE_TRIES", tries, 5, 1, 20,
		"the first one included; 429, 5xx and timeouts are tried again",
		number(func(s *Settings) *int { return &s.LineTries })},
	{"HOLDFAST_RETRY_BUDGET", duration, 120 * second, 0, 15 * minute,
		"what a line may wait between its tries before its last answer stands",
		number(func(s *Settings) *time.Duration { return &s.RetryBudget })},
	{"HOLDFAST_LONG_WAIT", duration, 10 * second, second, 15 * minute,
		"a longer wait hands the part over: an idle function is paid for",
		number(func(s *Settings) *time.Duration { return &s.LongWait })},

	{"HOLDFAST_MAX_ATTEMPTS", claims, 3, 2, 100,
		"claims in a row without progress; the second one already goes line by line",
		number(func(s *Settings) *int { return &s.MaxAttempts })},
	{"HOLDFAST_DEAD_GRACE", duration, 1 * hour, second, 14 * day,
		"a dead part waits this long for a redrive; then its lines become part_dead",
		number(func(s *Settings) *time.Duration { return &s.DeadGrace })},
	{"HOLDFAST_DRAIN", duration, 2 * minute, second, 10 * minute,
		"a cancelled batch's key works until it is drained, 10 minutes at most",
		number(func(s *Settings) *time.Duration { return &s.Drain })},
	{"HOLDFAST_OVERDUE", duration, 2 * hour, second, 14 * day,
		"a message unseen for so long counts as lost; copies cost an idle run each, so it is above what a queue usually takes, and doubled each time",
		number(func(s *Settings) *time.Duration { return &s.Overdue })},

	{claimStale, duration, 180 * second, 30 * second, 1 * hour,
		"a delivery whose owner died waits this long; far above the longest submit, or live owners would be robbed",
		number(func(s *Settings) *time.Duration { return &s.ClaimStale })},

	{"HOLDFAST_RECEIVES", receives, 1_000, 10, 1_000,
		"SQS's own ceiling; bounced duplicates must never reach the dead-letter queue",
		number(func(s *Settings) *int { return &s.Receives })},
	{"HOLDFAST_RETENTION", seconds, 14 * day, minute, 14 * day,
		"SQS's own bounds; a message is to outlive every wait for it",
		number(func(s *Settings) *time.Duration { return &s.Retention })},

	{"HOLDFAST_WAIT_HEARTBEAT", seconds, 6 * hour, minute, 14 * day,
		"coarse, because time in the queue counts; then the wait sends a new message",
		number(func(s *Settings) *time.Duration { return &s.WaitHeartbeat })},
	{"HOLDFAST_WAIT_TIMEOUT", seconds, 48 * hour, 2 * minute, 14 * day,
		"above every window: the table ends a batch, not its workflow",
		number(func(s *Settings) *time.Duration { return &s.WaitTimeout })},

	{"HOLDFAST_FILE_EXPIRY", duration, 30 * day, 1 * hour, 365 * day,
		"what OpenAI does for batch files; an upload may ask for less",
		number(func(s *Settings) *time.Duration { return &s.FileExpiry })},
	{"HOLDFAST_UPLOAD_EXPIRY", duration, 24 * hour, 1 * hour, 5 * day,
		"how long the parts of a large file may take; below the 7 days after which S3 drops them",
		number(func(s *Settings) *time.Duration { return &s.UploadExpiry })},
	{"HOLDFAST_ENDPOINTS", paths, 0, 0, 0,
		"the allow-list: what a line may call as its submitter",
		list("/v1/chat/completions,/v1/completions,/v1/embeddings,/v1/responses",
			"-", "-", "paths below /v1/ without a query, separated by commas", checkEndpoint, func(s *Settings) *[]string { return &s.Endpoints })},
	{"HOLDFAST_WINDOWS", windows, 0, 0, 0,
		"completion windows; short ones (15s) are for tests",
		list("24h,1h", "1s", "168h", "durations in whole seconds from 1s to 168h, separated by commas", checkWindow, func(s *Settings) *[]string { return &s.Windows })},
	{"HOLDFAST_MODELS", models, 0, 0, 0,
		"what GET /v1/models shows; the API never asks the upstream, and lines may name others",
		list("", "-", "-", "names of models without blanks, separated by commas", checkModel, func(s *Settings) *[]string { return &s.Models })},
}
