package batch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Runner replays parts against a model. It is safe for concurrent use; each
// [Runner.Run] is a worker of its own. Between runs it keeps only how much each
// model takes (pacer).
//
// Inside a run one goroutine owns everything (shift and its hands). Requests,
// reads, checkpoints and heartbeats run in goroutines of their own and report
// by channel. A panic in one of them ends the process, on purpose: its results
// since the last checkpoint are repeated by the next owner, where a swallowed
// panic would leave a line without a result.
type Runner struct {
	RunnerPorts
	o     RunnerOptions
	pacer *pacer
}

// RunnerPorts is what a Runner needs; every field is required.
type RunnerPorts struct {
	Batches  Batches // only Get is called
	Parts    Parts   // only Get is called
	Claims   Claims
	Steals   Steals
	Deaths   Deaths // only Declare is called
	Events   Events // only Record is called
	Objects  Objects
	Queue    Queue
	Workflow Workflow // only Report is called
	Model    Model
	Log      *slog.Logger
	// Results is the bucket that chunks are written to.
	Results string
}

// RunnerOptions tunes a Runner. A zero field has the default named with it.
type RunnerOptions struct {
	// Requests in flight to one model, over all hands of a run: at first, and the
	// bounds between which that adapts (see pace). Ceiling bounds those to all models
	// together, too. 1 <= Floor <= Concurrency <= Ceiling.
	Concurrency int // 32
	Floor       int // 1
	Ceiling     int // 128, or Concurrency where that is more

	CheckpointLines int           // C, results that force a checkpoint; 100
	CheckpointEvery time.Duration // the longest a result waits for one; 15 s
	CheckpointBytes int64         // bytes of results that force one, half of the window; 8 MiB

	// ReplyBytes is the largest result that a reply may become. The Model bounds what
	// it reads; one that isn't JSON grows when it is kept as a string. 16 MiB.
	ReplyBytes int64

	Lease     time.Duration // of a claim, and of its message's visibility; 120 s
	Heartbeat time.Duration // a quarter of Lease
	Skew      time.Duration // how far two clocks may differ; 5 s
	LookEvery time.Duration // the oldest view of the batch on which a line is sent; 5 s, a quarter of Lease at most

	LineTimeout time.Duration // one try of one line; 120 s
	Margin      time.Duration // kept for checkpoint and hand-over; 60 s
	Tries       int           // of a line by one claim, the first included; 5
	RetryBudget time.Duration // waiting between the tries of a line, in sum; 120 s
	LongWait    time.Duration // a longer Retry-After hands the part over; 10 s

	MaxAttempts int           // claims in a row without progress that a part may have; 3
	DeadGrace   time.Duration // how long a dead part waits for a redrive before it is sealed; 1 h

	// Overdue is how long the message of a part that was given back may stay unseen
	// before the reaper sends another; 2 h.
	Overdue time.Duration

	Observer Observer // nil: nobody is told
}

// The bounds of an input line and its nesting are the ceilings of the settings,
// not the settings: what was accepted by a plan is run, whatever was deployed
// since.
const (
	maxLineBytes = 10 << 20
	maxNesting   = 1000
)

// How long a message that can't be run now is hidden, where nothing better is
// known.
const (
	maxDelay    = 15 * time.Minute // the longest a sent message can be delayed
	maxHide     = 12 * time.Hour   // the longest a received one can be hidden
	firstReturn = 5 * time.Second  // a failure's first backoff; doubled at each receive
	reportWait  = 10 * time.Second // the part is over, only the report failed
	deadWait    = 5 * time.Minute  // not to be declared dead, or a newer program's: somebody must look at it first
	overdue     = 2 * time.Hour    // a message not seen for so long counts as lost, unless told otherwise
)

// NewRunner checks ports and options, and the relations between them.
func NewRunner(p RunnerPorts, o *RunnerOptions) (*Runner, error) {
	if p.Batches == nil || p.Parts == nil || p.Claims == nil || p.Steals == nil || p.Deaths == nil || p.Events == nil || p.Objects == nil || p.Queue == nil ||
		p.Workflow == nil || p.Model == nil || p.Log == nil || p.Results == "" {
		return nil, errors.New("batch: a Runner needs all of its ports")
	}
	if o == nil {
		o = &RunnerOptions{}
	}
	opts, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("batch: runner options: %w", err)
	}
	pacer := newPacer(opts.Floor, opts.Concurrency, opts.Ceiling)
	pacer.storm = opts.Tries + 1
	return &Runner{RunnerPorts: p, o: opts, pacer: pacer}, nil
}

func orDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

func (o RunnerOptions) withDefaults() (RunnerOptions, error) {
	orDefault(&o.Concurrency, 32)
	orDefault(&o.Floor, 1)
	orDefault(&o.Ceiling, max(128, o.Concurrency))
	orDefault(&o.CheckpointLines, 100)
	orDefault(&o.CheckpointEvery, 15*time.Second)
	orDefault(&o.CheckpointBytes, 8<<20)
	orDefault(&o.ReplyBytes, 16<<20)
	orDefault(&o.Lease, 120*time.Second)
	orDefault(&o.Heartbeat, o.Lease/4)
	orDefault(&o.Skew, 5*time.Second)
	orDefault(&o.LookEvery, min(5*time.Second, o.Lease/4))
	orDefault(&o.LineTimeout, 120*time.Second)
	orDefault(&o.Margin, 60*time.Second)
	orDefault(&o.Tries, 5)
	orDefault(&o.RetryBudget, 120*time.Second)
	orDefault(&o.LongWait, 10*time.Second)
	orDefault(&o.MaxAttempts, 3)
	orDefault(&o.DeadGrace, time.Hour)
	orDefault(&o.Overdue, overdue)

	var faults []error
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"Concurrency", int64(o.Concurrency)}, {"Floor", int64(o.Floor)}, {"Ceiling", int64(o.Ceiling)},
		{"CheckpointLines", int64(o.CheckpointLines)},
		{"CheckpointEvery", int64(o.CheckpointEvery)}, {"CheckpointBytes", o.CheckpointBytes},
		{"ReplyBytes", o.ReplyBytes},
		{"Lease", int64(o.Lease)}, {"Heartbeat", int64(o.Heartbeat)}, {"Skew", int64(o.Skew)},
		{"LookEvery", int64(o.LookEvery)}, {"LineTimeout", int64(o.LineTimeout)}, {"Margin", int64(o.Margin)},
		{"Tries", int64(o.Tries)}, {"RetryBudget", int64(o.RetryBudget)}, {"LongWait", int64(o.LongWait)},
		{"MaxAttempts", int64(o.MaxAttempts)}, {"DeadGrace", int64(o.DeadGrace)}, {"Overdue", int64(o.Overdue)},
	} {
		if n.value < 0 {
			faults = append(faults, fmt.Errorf("%s is negative", n.name))
		}
	}
	if o.Floor > o.Concurrency || o.Concurrency > o.Ceiling {
		faults = append(faults, errors.New("option Concurrency must lie between Floor and Ceiling"))
	}
	if o.Lease < 4*o.Heartbeat {
		faults = append(faults, errors.New("option Lease must be at least 4 times Heartbeat: three may fail before a live worker is robbed"))
	}
	if o.LookEvery > o.Lease/2 {
		faults = append(faults, errors.New("option LookEvery must be at most half of Lease: a batch that can't be looked at for a lease fails its part"))
	}
	if o.Lease+o.Skew > maxHide {
		faults = append(faults, errors.New("options Lease and Skew together must be at most 12h: a bounced message is hidden that long"))
	}
	return o, errors.Join(faults...)
}

// callTimeout bounds one call of a port, so that one that hangs costs neither
// the lease nor the run.
func (o RunnerOptions) callTimeout() time.Duration { return o.Lease / 8 }

// window bounds the bytes that are not committed: see room.
func (o RunnerOptions) window() int64 { return 2 * o.CheckpointBytes }

// likelyReply is n within what a line may get for its reply before that has come:
// four lines go in any case.
func (o RunnerOptions) likelyReply(n int64) int64 {
	return max(min(n, o.ReplyBytes, o.window()/4), 1)
}

// Outcome tells the caller of a run what to do with the message it came with.
type Outcome struct {
	// Ack: the message is dealt with; let the poller delete it. Otherwise report
	// it as failed, and change nothing: its visibility has been set.
	Ack bool
	// Why in one word, for logs and metrics: done, over, gone, held, dead,
	// exhausted, lost, yielded, ended, failed, unreported, abandoned, refused.
	Why string
	// Tally counts over all parts of the run.
	Tally Tally
	// Lines are Tally's, by batch; nil while there are none.
	Lines map[Subject]int
}

// Tally counts what a run did.
type Tally struct {
	Parts int // taken, the first included, whatever became of them
	Done  int // of them, finished here
	Lines int // results committed
	Tries int // requests sent
}

// Run works on the delivered part and, while its tail drains, on the next
// messages of the queue, eight parts in hand at most, until nothing is left or
// until `until` comes too near. It returns when everything it started has
// ended. When ctx ends first, or `until` passes, everything is dropped where it
// stands: the lease lapses and the next owner repeats what wasn't committed.
func (r *Runner) Run(ctx context.Context, first Delivery, until time.Time) Outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &shift{
		r:      r,
		ctx:    ctx,
		cancel: cancel,
		until:  until,
		last:   until.Add(-r.o.LineTimeout - r.o.Margin),
		events: make(chan func(), r.o.Ceiling),
		lanes:  newLanes(r.pacer),
		room:   room{most: r.o.window()},
		guess:  r.o.likelyReply(r.o.window() / int64(2*r.o.Concurrency)),
		views:  map[viewKey]*view{},
	}
	s.take(first, true)
	s.run()
	s.slots.pass(time.Now(), s.inFlight)
	r.o.Observer.Add(MetricSlotUse, s.slots.percent())
	if n := s.untold.dropped; n > 0 {
		r.Log.Warn("events not recorded", "events", n)
	}
	return s.outcome
}
