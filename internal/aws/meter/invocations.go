package meter

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/cost"
)

// born is when this package was initialised, which is all but when the process
// began.
var born = time.Now()

// Invocations writes one usage line for each invocation of a function. The zero
// value logs nothing. Safe for concurrent use.
type Invocations struct {
	function string
	memory   int
	slots    int
	log      *slog.Logger
	init     *atomic.Int64 // milliseconds, until a line has them
}

// NewInvocations is for the function of that name; make it last before the
// function waits for work, since how long the process has taken until then is
// what the first line gives as its start, which is billed too. slots is K where
// the function has one, else 0. getenv is os.Getenv.
func NewInvocations(function string, slots int, getenv func(string) string, log *slog.Logger) Invocations {
	memory, _ := strconv.Atoi(getenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")) // absent outside Lambda
	i := Invocations{function: function, memory: memory, slots: slots, log: log, init: &atomic.Int64{}}
	i.init.Store(max(time.Since(born).Milliseconds(), 1))
	return i
}

// Start begins an invocation: what is called under the returned context counts.
// end writes its line; lines and unnamed are as in [Record.Shares].
func (i Invocations) Start(ctx context.Context) (_ context.Context, end func(lines map[batch.Subject]int, unnamed batch.Subject)) {
	if i.log == nil {
		return ctx, func(map[batch.Subject]int, batch.Subject) {}
	}
	began := time.Now()
	ctx, r := Begin(ctx)
	return ctx, func(lines map[batch.Subject]int, unnamed batch.Subject) { i.write(ctx, r, began, lines, unnamed) }
}

func (i Invocations) write(ctx context.Context, r *Record, began time.Time, lines map[batch.Subject]int, unnamed batch.Subject) {
	attrs := []slog.Attr{
		slog.Int("v", cost.UsageVersion),
		slog.String("function", i.function),
		slog.Int("mb", i.memory),
		// Lambda rounds up to the next.
		slog.Int64("ms", int64((time.Since(began)+time.Millisecond-1)/time.Millisecond)),
	}
	if start := i.init.Swap(0); start > 0 {
		attrs = append(attrs, slog.Int64("init_ms", start))
	}
	if i.slots > 0 {
		attrs = append(attrs, slog.Int("k", i.slots))
	}
	attrs = append(attrs, slog.Any("batches", r.Shares(lines, unnamed)))
	i.log.LogAttrs(ctx, slog.LevelInfo, cost.UsageMessage, attrs...)
}
