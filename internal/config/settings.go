package config

import (
	"errors"
	"slices"
	"time"
)

// Settings are the effective values of the table. Field comments give units;
// bounds, defaults and reasons are in the table (holdfast config prints it).
type Settings struct {
	FileLines int   // requests a file
	FileBytes int64 // bytes a file
	LineBytes int64 // bytes an input line, without its line end
	Nesting   int   // levels of JSON
	// ReplyBytes is the largest body of an upstream reply that is kept.
	ReplyBytes int64
	// DirectBytes is the largest file that POST /v1/files takes.
	DirectBytes int64

	PartLines       int           // P, requests a part
	CheckpointLines int           // C, results that force a checkpoint
	CheckpointEvery time.Duration // the longest a finished result waits for a checkpoint
	CheckpointBytes int64         // bytes of results that force a checkpoint

	// Requests in flight to one model in one worker: at first (K), and the bounds
	// between which that adapts. The ceiling bounds those to all models, too.
	Concurrency        int
	ConcurrencyFloor   int
	ConcurrencyCeiling int
	MaxConcurrency     int // work functions running at once
	WorkMemory         int // MB of the work function

	Lease     time.Duration // whole seconds
	Heartbeat time.Duration // a quarter of Lease unless set
	Skew      time.Duration // how far two clocks may differ before a live lease is stolen

	LineTimeout     time.Duration // one request, one try
	FunctionTimeout time.Duration // whole seconds
	Margin          time.Duration // kept free at the end of a function's life
	LineTries       int           // tries a line, the first one included
	RetryBudget     time.Duration // waiting a line may spend between its tries
	LongWait        time.Duration // a longer wait hands the part over instead

	MaxAttempts int           // claims in a row without progress that mark a part dead
	DeadGrace   time.Duration // how long a dead part waits for a redrive
	Drain       time.Duration // how long a cancelled batch waits for its workers
	Overdue     time.Duration // how long a part's message may stay unseen before another is sent

	ClaimStale        time.Duration // age at which a bridge's reservation counts as its owner's death
	SubmitTimeout     time.Duration // one submit of a bridge, whole seconds
	IngestConcurrency int           // ingest functions running at once
	IngestReceives    int           // tries of a message, after which it is given up

	Receives  int           // receives that move a message to the dead-letter queue
	Retention time.Duration // life of a message, whole seconds

	WaitHeartbeat time.Duration // of the workflow's wait for a part, whole seconds
	WaitTimeout   time.Duration // of the same, whole seconds

	WrongKeys int // wrong API keys a minute that one source address may show one process

	UploadExpiry time.Duration // life of an upload that nobody completes
	FileExpiry   time.Duration // life of a file nobody gave an expiry
	Endpoints    []string      // paths a batch may name
	Windows      []string      // completion windows a batch may name, as sent on the wire
	Models       []string      // what the models list shows; nil: nothing
}

// Default returns the settings of an empty environment.
func Default() Settings {
	s, err := Parse(func(string) string { return "" })
	if err != nil {
		// The table contradicts itself; its own test says so first.
		panic(err)
	}
	return s
}

// Parse reads every setting through getenv (os.Getenv, usually). The error joins
// one [*Fault] for each value that is malformed or out of bounds and one
// [*BrokenRelation] for each relation that doesn't hold; the settings are usable
// only without one.
func Parse(getenv func(string) string) (Settings, error) {
	var (
		s         Settings
		faults    []error
		malformed = map[string]bool{}
	)
	for _, r := range table {
		raw := getenv(r.name)
		if raw == "" {
			r.setDefault(&s)
			continue
		}
		if r.fallsBack() && !r.takes(raw) {
			r.setDefault(&s) // Fallbacks says so
			continue
		}
		fault, ok := r.parse(raw, &s)
		if fault != nil {
			faults = append(faults, fault)
		}
		malformed[r.name] = !ok
	}
	// A value that is merely out of bounds still takes part in its relations: the
	// person who set it learns everything at once. A malformed one has no value.
	for _, rel := range relations {
		if slices.ContainsFunc(rel.between, func(name string) bool { return malformed[name] }) {
			continue
		}
		if !rel.holds(s) {
			faults = append(faults, broken(rel, s))
		}
	}
	return s, errors.Join(faults...)
}

// Window returns how long a batch with this completion window may take; false
// when the window, compared letter by letter, is none of the configured ones.
func (s Settings) Window(name string) (time.Duration, bool) {
	if !slices.Contains(s.Windows, name) {
		return 0, false
	}
	d, err := time.ParseDuration(name)
	return d, err == nil
}

// LongestWindow returns the longest configured completion window.
func (s Settings) LongestWindow() time.Duration {
	var longest time.Duration
	for _, name := range s.Windows {
		if d, err := time.ParseDuration(name); err == nil {
			longest = max(longest, d)
		}
	}
	return longest
}

// InFlight is the most requests that a model ever sees at once: work functions
// times the most in flight in each. It is printed at deploy.
func (s Settings) InFlight() int { return s.MaxConcurrency * s.ConcurrencyCeiling }

// HeldParts is how many parts one worker may hold at once: batch.MaxHands, for those
// who see only the settings. A test of the work function holds that they are equal.
const HeldParts = 8

// Waiting is how many parts of one wide batch its workflow waits for at once.
// Enough that no worker waits for the next: it may hold eight whose last lines are
// under way (docs/adr/0011-tails-of-many-parts.md), and as many again as it would
// need for a round lie in the queue while reports and messages travel. And no
// more, because who comes next queues behind these: behind two parts a worker, not
// behind a batch's 20,000. Step Functions runs 10,000.
func (s Settings) Waiting() int { return min(max(40, (HeldParts+2)*s.MaxConcurrency), 10_000) }

// ReapMemory is the reaper's memory in MB, and so its share of a processor. Half as
// much would save two cents a month in rounds that find nothing, if they took no
// longer for it; and be twice as slow in those that have thousands of parts to give
// back, whose time is a minute.
const ReapMemory = 512

// IngestRetention is how long the ingest queue keeps a message: for longer than its
// tries last ([relations]), and half as long as its dead letters, whose age counts from
// when a message was first sent.
const IngestRetention = 7 * 24 * time.Hour

// longestIngestWait is the most that lies between two tries of a message, as
// internal/bridge has it; and a try whose claim stays has the next one wait until that
// is stale.
const longestIngestWait = 15 * time.Minute

// IngestTimeout is the ingest function's timeout and the visibility of its queue:
// one submit, and what comes before and after it (reading the object and its
// settings, the claim, the confirm, an error object), all of a batch's messages
// side by side.
func (s Settings) IngestTimeout() time.Duration { return s.SubmitTimeout + 40*time.Second }

// Env returns every setting as an environment variable, but for an empty list,
// which no variable can say. Parse of it gives s again.
func (s Settings) Env() map[string]string {
	env := make(map[string]string, len(table))
	for _, r := range table {
		if v := r.value(s); v != "" {
			env[r.name] = v
		}
	}
	return env
}

// Row is one line of the printed table. Values are formatted as the variable
// takes them; Floor and Ceiling of a list bound its elements.
type Row struct {
	Name    string `json:"name"`
	Unit    string `json:"unit"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Floor   string `json:"floor"`
	Ceiling string `json:"ceiling"`
	Why     string `json:"why"`
}

// Rows returns the table in its own order with the values of s.
func Rows(s Settings) []Row {
	rows := make([]Row, 0, len(table))
	for _, r := range table {
		rows = append(rows, r.row(s))
	}
	return rows
}
