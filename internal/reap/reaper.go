package reap

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"holdfast/internal/batch"
)

// Ports is what a Reaper works on. All are needed but Letters and Claims.
type Ports struct {
	Batches  batch.Batches // Get
	Parts    batch.Parts   // Get, All
	Reaps    batch.Reaps
	Deaths   batch.Deaths
	Seals    batch.Seals
	Events   batch.Events   // Record
	Queue    batch.Queue    // Send, SendAll
	Workflow batch.Workflow // Report
	Ender    *batch.Ender
	Letters  batch.Queue // the dead-letter queue: Receive, Delete; nil: it isn't read
	Claims   Claims      // nil: claims are left alone
}

// Options are a Reaper's times. A zero field has the default named with it.
type Options struct {
	Skew        time.Duration // how far two clocks may differ; 5 s
	MaxAttempts int           // claims in a row without progress that a part may have; 3
	DeadGrace   time.Duration // how long a dead part waits for a redrive; 1 h

	// Overdue is how long a part's message may stay unseen before it is sent again;
	// doubled at each time, up to four-fold; 2 h. Resend is the same for a part
	// that ever lapsed, whose message was sent by a reaper that may have died; 5 min,
	// at most Overdue.
	Overdue time.Duration
	Resend  time.Duration
	// Waiting is how many parts of a wide batch its workflow waits for at once; 80.
	Waiting int

	Look time.Duration // between two looks at a batch with which nothing is wrong; 10 min
	Soon time.Duration // between two looks at one with which something is; 1 min
	Late time.Duration // how long after its window an open batch is in the report as overdue; 1 h

	Margin   time.Duration // before ctx's deadline nothing more is begun; 5 s
	Parallel int           // writes at once; 32
	Page     int           // rows asked for at once; batch.MaxDue, which is the most
	Letters  int           // dead letters read in one round; 200

	Observer batch.Observer
	Log      *slog.Logger // nil: nothing is logged
}

// Reaper does rounds. It holds no state between them and is safe for concurrent
// use.
type Reaper struct {
	Ports
	o Options
}

// New checks ports and options.
func New(p Ports, o *Options) (*Reaper, error) {
	if p.Batches == nil || p.Parts == nil || p.Reaps == nil || p.Deaths == nil || p.Seals == nil ||
		p.Events == nil || p.Queue == nil || p.Workflow == nil || p.Ender == nil {
		return nil, errors.New("reap: a Reaper needs all of its ports")
	}
	r := &Reaper{Ports: p}
	if o != nil {
		r.o = *o
	}
	if err := r.o.complete(); err != nil {
		return nil, fmt.Errorf("reap: %w", err)
	}
	return r, nil
}

// complete fills in what isn't set, and refuses what can't be.
func (o *Options) complete() error {
	orDefault(&o.Skew, 5*time.Second)
	orDefault(&o.MaxAttempts, 3)
	orDefault(&o.DeadGrace, time.Hour)
	orDefault(&o.Overdue, 2*time.Hour)
	orDefault(&o.Resend, min(5*time.Minute, o.Overdue))
	orDefault(&o.Waiting, 80)
	orDefault(&o.Look, 10*time.Minute)
	orDefault(&o.Soon, time.Minute)
	orDefault(&o.Late, time.Hour)
	orDefault(&o.Margin, 5*time.Second)
	orDefault(&o.Parallel, 32)
	orDefault(&o.Page, batch.MaxDue)
	orDefault(&o.Letters, 200)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for name, v := range map[string]int64{
		"Skew": int64(o.Skew), "MaxAttempts": int64(o.MaxAttempts), "DeadGrace": int64(o.DeadGrace), "Overdue": int64(o.Overdue),
		"Resend": int64(o.Resend), "Waiting": int64(o.Waiting), "Look": int64(o.Look), "Soon": int64(o.Soon), "Late": int64(o.Late),
		"Margin": int64(o.Margin), "Parallel": int64(o.Parallel), "Page": int64(o.Page), "Letters": int64(o.Letters),
	} {
		if v < 0 {
			return fmt.Errorf("option %s is negative", name)
		}
	}
	switch {
	case o.Page > batch.MaxDue:
		return fmt.Errorf("option Page is %d; at most %d", o.Page, batch.MaxDue)
	case o.Resend > o.Overdue:
		return fmt.Errorf("option Resend is %v, above Overdue, %v", o.Resend, o.Overdue)
	}
	return nil
}

func orDefault[T ~int | ~int64](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}
